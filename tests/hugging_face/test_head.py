"""The output layer in full precision: what it has, that it is the model's, and what the report says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import AutoModel

from softmax_bottleneck import argmaxable, kld, rank
from softmax_bottleneck.errors import ConfigurationError, MatrixError, SourceError
from softmax_bottleneck.hugging_face import checks
from softmax_bottleneck.sources import open_source

from ..sources.conftest import rows_of
from .conftest import GROUPED, Architecture, Open, Save, change_weights


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_layer_is_computed_in_full_precision_under_a_half_precision_body(
    save: Save, open_model: Open, dtype: str
) -> None:
    folder = save("llama")
    source = open_model(folder, dtype=dtype)
    (hidden,) = source.hidden([range(50)])
    body = getattr(torch, dtype)
    assert torch.equal(hidden, hidden.to(body).float())  # in the head's type, with the body's numbers
    weight = load_file(folder / "model.safetensors")["lm_head.weight"].to(body)
    exact = torch.log_softmax(hidden.double() @ weight.double().T, -1).numpy()
    np.testing.assert_allclose(rows_of(source)[:50], exact, atol=2e-5)
    assert source.model.checked.difference > 1e-4  # the model's own logits are rounded


@pytest.mark.parametrize(
    ("name", "own", "scale"),
    [("Cohere", {"logit_scale": 0.3}, 0.3), ("HyperCLOVAX", {"logits_scaling": 4.0}, 4.0),
     ("Granite", {"logits_scaling": 4.0}, 0.25)],
)  # fmt: skip
def test_scaled_logits(name: str, own: dict[str, Any], scale: float, save: Save, open_model: Open) -> None:
    """Cohere and HyperCLOVA X multiply their logits, Granite divides them: all are linear, and in the factors."""
    source = open_model(save(Architecture(name, {**GROUPED, **own})), precise=True)
    assert source.head.scale == pytest.approx(scale)
    factored, dense = rank(source).spectrum, rank(source, method="dense").spectrum
    np.testing.assert_allclose(factored.values, dense.values, rtol=0, atol=1e-12 * dense.values[0])


def test_padded_vocabularies_are_reported_both_ways(save: Save, open_model: Open) -> None:
    folder = save("gpt-neox")
    both = open_model(folder)
    alone = both.without_padding()
    assert alone.shape[1] == 60
    tokenizer, model = (open_model(folder, vocab=vocab) for vocab in ("tokenizer", "model"))
    assert tokenizer.without_padding() is model.without_padding() is None
    assert rank(both).to_dict()["rank"] == rank(model).to_dict()["rank"]
    assert rank(alone).to_dict()["rank"] == rank(tokenizer).to_dict()["rank"]
    assert both.first(20).without_padding().shape == (20, 60)
    assert rank(both).to_dict()["head_analysis"]["vocabularies"] == {"model": 72, "tokenizer": 60}
    part = rows_of(tokenizer)
    renormalized = rows_of(model)[:, :60]
    renormalized = renormalized - np.log(np.exp(renormalized).sum(1, keepdims=True))
    np.testing.assert_allclose(part, renormalized, atol=2e-5)
    for log_probs, source in ((rows_of(model), both), (part, alone)):
        between = log_probs[:, None] - log_probs
        assert kld(source).kld == pytest.approx((np.exp(log_probs)[:, None] * between).sum(2).mean(), rel=1e-5)
    reports = rank({"gpt": both, "other": tokenizer})
    assert [report.name for report in reports] == ["gpt", "gpt, no padding", "other"]
    tokens = argmaxable(open_model(folder))
    padding = tokens.to_dict()["padding"]
    assert (padding["first"], padding["last"]) == (60, 71)
    assert set(padding["unargmaxable"]) == {token for token in tokens.unargmaxable.tolist() if token >= 60}
    beyond = "ids 60 to 71 are rows of the output layer beyond the tokenizer's tokens"
    assert any(text.startswith(beyond) for _, text in tokens.rows())
    assert not argmaxable(open_model(folder, vocab="tokenizer")).padding


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_logits_that_the_layer_does_not_make_are_refused(
    dtype: str, save: Save, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the configuration's key of the soft cap were not known: the numbers give it away.

    Also where the text's own logits are so small that the cap changes them less than a half-precision body rounds.
    """
    monkeypatch.setattr(checks, "SOFT_CAPS", ())
    folder = save("gemma2", final_logit_softcapping=300.0)
    with pytest.raises(SourceError, match=r"are not those of its output layer .* they differ by up to"):
        rank(open_model(folder, dtype=dtype))


def test_a_body_asks_for_its_model(save: Save) -> None:
    with pytest.raises(SourceError, match="the whole model, as AutoModelForCausalLM loads it, in place of its"):
        rank(AutoModel.from_pretrained(save("llama")), data=torch.arange(9))


def test_logits_that_are_left_out_are_refused(save: Save, open_model: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save("llama")
    source = open_model(folder)
    make = type(source.model.body).forward

    def some(self: Any, **inputs: Any) -> Any:
        made = make(self, **inputs)
        made.logits = made.logits[..., :50]
        return made

    monkeypatch.setattr(type(source.model.body), "forward", some)
    with pytest.raises(SourceError, match="keeps 50 of the 60 logits of its output layer: it cannot be taken apart"):
        rank(source)


def test_a_layer_that_is_no_product_is_refused(save: Save, open_model: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_model(save("llama"))
    make, own = torch.nn.Linear.forward, source.model.body.get_output_embeddings()  # type: ignore[operator]

    def bent(self: torch.nn.Linear, inputs: torch.Tensor) -> torch.Tensor:
        return make(self, inputs) + (0.01 if self is own else 0)

    monkeypatch.setattr(torch.nn.Linear, "forward", bent)
    with pytest.raises(SourceError, match=r"the output layer of .* does not compute W·h \+ b: its output diff"):
        rank(source)


def test_an_output_layer_of_zeros(save: Save, open_model: Open) -> None:
    """As models start out that are scaled for width."""
    report = rank(open_model(change_weights(save("llama"), lambda t: t["lm_head.weight"].zero_())))
    assert (report.rank.value, report.rank_centered.value) == (1, 0)


def test_experts_are_no_look_ahead(save: Save, open_model: Open) -> None:
    """Tokens share experts' products with others, whose roundoff changes with what those others are."""
    wide = {"hidden_size": 256, "intermediate_size": 128, "num_hidden_layers": 16, "num_local_experts": 16}
    folder = save(Architecture("Mixtral", {**GROUPED, **wide}), spread=0.06)
    assert open_model(folder, context_length=64, stride=32).bound.raw == 257


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_final_norms(dtype: str, save: Save, open_model: Open) -> None:
    """Nemotron keeps its LayerNorm's γ − 1; an RMSNorm meets no condition, in however coarse a type."""
    wide = {"hidden_size": 1024, "num_attention_heads": 2, "num_key_value_heads": 2}
    for name, own, is_layer_norm in (("Nemotron", {}, True), ("Olmo", wide, True), ("Llama", wide, False)):
        source = open_model(save(Architecture(name, {**GROUPED, **own}), spread=0.1), dtype=dtype, contexts=20)
        _ = source.full_head
        assert (source.model.checked.norm is not None) == is_layer_norm


@pytest.mark.parametrize(("masked", "mask"), [([4], -torch.inf), ([0, 7], -1e9)])
def test_tokens_that_the_bias_masks(save: Save, open_model: Open, masked: list[int], mask: float) -> None:
    """Their log-probability is −∞ in every context: refused, or left out of the factors and of the blocks alike."""
    folder = change_weights(save("phi"), lambda t: t["lm_head.bias"].__setitem__(masked, mask))
    with pytest.raises(MatrixError, match=rf"bias of .* -inf for token {masked[0]}: .* inf='drop-columns' leaves"):
        rank(open_model(folder))
    log_probs = rows_of(open_model(folder, precise=True))
    assert np.isneginf(log_probs[:, masked]).all()
    report = rank(open_model(folder, precise=True), inf="drop-columns")
    assert report.spectrum.method == "factored"
    assert report.source["dropped_columns"] == len(masked)
    expected = np.linalg.svd(np.delete(log_probs, masked, axis=1), compute_uv=False)
    np.testing.assert_allclose(report.spectrum.values, expected, rtol=0, atol=1e-12 * expected[0])
    assert "head_analysis" in report.to_dict()


@pytest.mark.parametrize(
    ("change", "dtype"),
    [
        (lambda t: t["lm_head.weight"][9].fill_(torch.nan), "float32"),
        (lambda t: t["model.norm.weight"].mul_(1e5), "float16"),  # beyond its range
    ],
)
def test_weights_that_are_not_numbers(change: Any, dtype: str, save: Save, open_model: Open) -> None:
    with pytest.raises(SourceError, match=r"the logits of .* are not finite: its weights are damaged, its"):
        rank(open_model(change_weights(save("llama"), change), dtype=dtype))


def test_the_line_of_a_token_is_its_sentence(save: Save, tmp_path: Path) -> None:
    """With a tokenizer that keeps the ends of lines, as byte-level ones do."""
    folder = save("llama")
    words = {"\n": 0} | {f"w{number}": number for number in range(1, 60)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w1"))
    tokenizer.pre_tokenizer = Split(Regex(r" "), "removed")
    tokenizer.save(str(folder / "tokenizer.json"))
    (tmp_path / "lines.txt").write_text("w2 w3 \n w4 w5 w6 \n w7 w8 w9")
    source = open_source(folder, data=str(tmp_path / "lines.txt"), context_length=2, stride=2)
    # Row r predicts token r + 1; the end of a line is the last token of it.
    found = [source.text.sentence(row, 60).split() for row in range(9)]
    assert found == [["w2", "w3"]] * 2 + [["w4", "w5", "w6"]] * 4 + [["w7", "w8", "w9"]] * 3
    assert source.text.sentence(3, 1).split() == ["w4", "w5", "w6"]
    assert source.text.sentence(7, 0).split() == ["w8"]


def test_settings_out_of_range(save: Save, open_model: Open) -> None:
    folder = save("gpt2")
    with pytest.raises(ConfigurationError, match="more than the 64 tokens the model can read"):
        open_model(folder, context_length=65)
    with pytest.raises(ConfigurationError, match="batch_size must be at least 1"):
        open_model(folder, batch_size=0)
    with pytest.raises(ConfigurationError, match="unknown dtype 'int8'; a Hugging Face model runs in"):
        open_model(folder, dtype="int8")
    with pytest.raises(ConfigurationError, match="stride does not apply to an array"):
        open_source(np.eye(3), stride=2)
