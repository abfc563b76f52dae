"""Loaded objects: a torch module, and a head on hidden states. Each is left as it was, or is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

import softmax_bottleneck as sb
from softmax_bottleneck.errors import ConfigurationError, SourceError
from softmax_bottleneck.heads import build
from softmax_bottleneck.integrations import model_statistics

T, M, d = 300, 60, 5


IDS = torch.randint(M, (8, 12), generator=torch.Generator().manual_seed(0))


class Bigram(nn.Module):
    """ids (B, L) → logits (B, L, M), with dropout that evaluation mode switches off, and something more."""

    def __init__(self, more: Callable[[Any], object] = lambda self: None) -> None:
        super().__init__()
        self.body, self.drop, self.out = nn.Embedding(M, d), nn.Dropout(0.5), nn.Linear(d, M, bias=False)
        self.register_buffer("steps", torch.zeros(2))
        self._more = [more]

    def forward(self, ids: Tensor) -> Any:
        self._more[0](self)
        return self.out(self.drop(self.body(ids)))


class WithLogits(Bigram):
    """The same, in an object as transformers returns it."""

    def forward(self, ids: Tensor) -> Any:
        return transformers.modeling_outputs.CausalLMOutput(logits=super().forward(ids))


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


def test_modes_of_all_parts_random_state_and_gradients_are_as_before() -> None:
    model = Bigram(lambda self: torch.rand(3)).train()
    model.drop.eval()
    before, state, random = copy.deepcopy(model.state_dict()), [*map(_mode, model.modules())], torch.get_rng_state()
    for measure in (sb.rank, sb.kld):
        measure(model, data=[IDS])
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert [*map(_mode, model.modules())] == state
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.is_grad_enabled()


def _mode(module: nn.Module) -> bool:
    return module.training


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda self: self.steps.add_(1), "steps"),
        (lambda self: self.out.weight.div_(2), r"out\.weight"),
        (lambda self: torch.mul(self.out.weight, 3, out=self.out.weight), r"out\.weight"),
    ],
)
def test_a_module_that_writes_is_refused(write: Any, name: str) -> None:
    model = Bigram(write).train()
    with pytest.raises(SourceError, match=f"forward pass of Bigram writes to its {name}, so .*: measure a function"):
        sb.rank(model, data=[IDS])
    assert model.training


class Merged(nn.Linear):
    """Low-rank weights that evaluation mode adds to the weight, as the package loralib does."""

    merged = False

    def train(self, mode: bool = True) -> Any:
        if self.merged == mode:
            self.weight.data += 0.5 if mode is False else -0.5
            self.merged = not mode
        return super().train(mode)


def test_what_evaluation_mode_merges_is_separate_again() -> None:
    model = nn.Sequential(nn.Embedding(M, d), Merged(d, M)).train()
    before = copy.deepcopy(model.state_dict())
    sb.rank(model, data=[IDS])
    torch.testing.assert_close(model.state_dict(), before)
    assert model[1].training
    assert not model[1].merged


def test_parameters_without_numbers_are_refused() -> None:
    model = nn.Sequential(nn.Embedding(M, d), nn.LazyLinear(M))
    with pytest.raises(SourceError, match=r"the parameter 1\.weight of Sequential has no numbers yet: run the module"):
        sb.rank(model, data=[IDS])


@pytest.mark.parametrize("mode", [True, False])
def test_rwkv_keeps_its_weights(mode: bool) -> None:
    """It halves the weights of its seventh block and those after it when it is evaluated, and doubles them again."""
    sizes = {"hidden_size": 16, "attention_hidden_size": 16, "intermediate_size": 32, "context_length": 64}
    torch.manual_seed(0)
    model = transformers.RwkvForCausalLM(transformers.RwkvConfig(vocab_size=M, num_hidden_layers=14, **sizes)).train(
        mode
    )
    before, ids = copy.deepcopy(model.state_dict()), torch.randint(M, (100,))
    own = copy.deepcopy(model).eval()(ids[None, :64]).logits[0].detach()
    source = sb.open(model, data=ids, context_length=64, stride=64)
    rows = next(iter(source.blocks([range(64)]))).log_probs
    torch.testing.assert_close(torch.from_numpy(rows), own.log_softmax(-1), rtol=1e-4, atol=1e-5)
    model_statistics(model, ids.view(5, 20))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert (model.training, model.rwkv.layers_are_rescaled) == (mode, False)
