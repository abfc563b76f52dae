"""Loaded objects: a torch module, and a head on hidden states. Nothing of theirs changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import softmax_bottleneck as sb
from softmax_bottleneck.errors import ConfigurationError, SourceError
from softmax_bottleneck.heads import build

T, M, d = 300, 60, 5


class Bigram(nn.Module):
    """ids (B, L) → logits (B, L, M), with dropout that evaluation mode switches off."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.drop = nn.Embedding(M, d), nn.Dropout(0.5)
        self.out = nn.Linear(d, M, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.out(self.drop(self.body(ids)))
        return logits


class WithLogits(Bigram):
    """The same, in an object as transformers returns it."""

    def forward(self, ids: Tensor) -> Any:
        from transformers.modeling_outputs import CausalLMOutput

        return CausalLMOutput(logits=super().forward(ids))


@pytest.mark.parametrize("make", [Bigram, WithLogits])
def test_a_torch_module_with_its_loader(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model, ids = make().double().train(), torch.randint(M, (40, 8))
    model.drop.eval()
    data = torch.utils.data.TensorDataset(ids)
    loader = torch.utils.data.DataLoader(data, batch_size=7)
    report = sb.rank(model, data=loader)
    assert (report.rank.value, report.rank_centered.value) == (d + 1, d)
    assert report.spectrum.shape == (320, M)
    assert (model.training, model.drop.training, model.out.training) == (True, False, True)
    mappings = [{"input_ids": batch, "attention_mask": torch.ones_like(batch)} for batch in ids.split(7)]
    np.testing.assert_array_equal(sb.rank(model, data=mappings).spectrum.values, report.spectrum.values)
    padded = [{"input_ids": ids, "attention_mask": torch.arange(8).expand(40, 8) < 5}]
    np.testing.assert_array_equal(
        sb.singular_values(model, data=padded).values, sb.singular_values(model, data=[ids[:, :5]]).values
    )


@pytest.mark.parametrize("name", ["softmax", "moc", "mos", "sigsoftmax", "lms-plif"])
def test_a_head_on_hidden_states(name: str) -> None:
    torch.manual_seed(0)
    head, H = build(name, hidden_size=d, vocab_size=M).train(), torch.randn(T, d)
    with torch.no_grad():
        expected = sb.rank(head.eval().log_prob(H))
    found = sb.rank(head.train(), hidden=H)
    assert head.training
    assert found.spectrum.method == ("factored" if name in ("softmax", "moc") else "dense")
    np.testing.assert_allclose(found.spectrum.values, expected.spectrum.values, atol=1e-4)
    assert found.bound["raw"] == head.rank_bound.raw
    blocks = sb.rank(head, hidden=(rows.numpy() for rows in H.split(41)))
    np.testing.assert_allclose(blocks.spectrum.values, found.spectrum.values, rtol=1e-6, atol=1e-6)


def test_an_ordinary_output_layer() -> None:
    torch.manual_seed(0)
    layer, H = nn.Linear(d, M), torch.randn(T, d)
    report = sb.rank(layer, hidden=H)
    assert (report.rank.value, report.rank_centered.value, report.spectrum.method) == (d + 2, d + 1, "factored")
    assert (report.bound["raw"], report.embedding_size) == (d + 2, d)
    ids = torch.randint(M, (T,))
    kept = sb.gradient(layer, hidden=H, targets=ids).kept
    G = torch.softmax(layer(H), -1).detach() - nn.functional.one_hot(ids, M)
    C = (layer.weight - layer.weight.mean(0)).detach()
    assert kept == pytest.approx(float((G @ torch.linalg.qr(C)[0]).norm() / G.norm()), rel=1e-5)
    narrow = sb.rank(layer.bfloat16(), hidden=H.bfloat16())
    assert (narrow.rank_centered.value, narrow.eps.dtype) == (d + 1, "float32")


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({}, ConfigurationError, r"a Linear is measured on hidden states: give hidden=H, of shape \(T, hidden_size\)"),
        ({"hidden": torch.randn(3, 4)}, SourceError, r"the head takes hidden states \(T, 5\).* of shape \(3, 4\)"),
        ({"hidden": [[1, 2]]}, SourceError, "hidden states"),
        ({"hidden": torch.randn(0, 5)}, SourceError, "they are empty, and each context needs a row"),
        ({"hidden": iter([])}, SourceError, "they are empty, and each context needs a row"),
        ({"hidden": torch.full((3, 5), torch.nan)}, SourceError, "hold NaN or infinity"),
        ({"hidden": (torch.randn(2, 3, 5),) * 4}, SourceError, r"a tuple of 4 tensors .* such as hidden_states\[-1\]"),
        ({"hidden": torch.randn(4, 2, 3, 5)}, SourceError, "more than three dimensions, .*: give the last layer"),
        ({"hidden": torch.randn(3, 5), "targets": []}, SourceError, "targets must be 3 token ids .* not 0$"),
        *(
            ({"hidden": torch.randn(3, 5), "targets": wrong}, SourceError, f"targets must be whole numbers.* {what}")
            for wrong, what in (
                ([0.5, 1, 2], "not float64"),
                ("abc", "not text"),
                ([0, 1, None], "not object"),
                (torch.arange(3) * 1j, "not complex64"),
                (torch.ones(3).bfloat16(), "BFloat16"),
                (torch.empty(3, dtype=torch.int64, device="meta"), "meta"),
                (np.full(3, 2**64 - 1, np.uint64), "that fit in int64, not uint64"),
            )
        ),
        ({"hidden": {"last_hidden_state": torch.randn(2, 3, 5)}}, SourceError, "hidden states must be .* numbers"),
        ({"hidden": torch.randn(3, 5), "targets": [-2, 0, 1]}, SourceError, "must be 3 token ids from 0"),
        ({"hidden": torch.randn(3, 5), "targets": [1]}, SourceError, "targets must be 3 token ids"),
        ({"hidden": torch.randn(3, 5), "data": "ptb"}, ConfigurationError, "data does not apply to an output layer"),
    ],
)
def test_what_a_head_needs(arguments: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        sb.rank(nn.Linear(d, M), **arguments)
