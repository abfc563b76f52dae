"""The output layer of a saved model, read alone and without a text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import softmax_bottleneck as sb
from softmax_bottleneck.hugging_face.loading import output_layer, quiet
from softmax_bottleneck.hugging_face.model import HuggingFaceModel
from softmax_bottleneck.sources import output_weights

from .conftest import ARCHITECTURES, TOKENS, Save, change_weights, d


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_weights_of_every_architecture(name: str, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the loaded model, which is not loaded for them."""
    folder = save(name, dtype=torch.bfloat16)
    with monkeypatch.context() as patched:
        patched.setattr(HuggingFaceModel, "body", property(lambda _: pytest.fail("the whole model was loaded")))
        layer = output_weights(folder)
    with quiet() as transformers:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    expected = output_layer(model)
    assert torch.equal(layer.weight, expected.weight)
    assert (layer.bias is None) == (expected.bias is None)
    assert layer.bias is None or torch.equal(layer.bias, expected.bias.float())
    assert (layer.stored, layer.own_tokens) == ("bfloat16", TOKENS)
    assert layer.tied == (expected.weight is model.get_input_embeddings().weight)
    assert layer.head.rank_bound.raw == (None if ARCHITECTURES[name].soft_cap else d + 1 + ARCHITECTURES[name].bias)


def test_padding_is_known_to_be_unused_and_found(save: Save) -> None:
    folder = save("gpt-neox")
    generator = torch.Generator().manual_seed(0)

    def plant(tensors: dict[str, torch.Tensor]) -> None:
        rows = tensors["embed_out.weight"]
        rows[5] = 0
        rows[TOKENS:] = 2.0 + 0.01 * torch.randn(12, d, generator=generator)

    report = sb.head(change_weights(folder, plant))
    assert report.rows_found.known_unused == report.rows_found.alike == (*range(TOKENS, TOKENS + 12),)
    assert report.names == {5: "w5"}
    assert "12: 60, 61" in str(report)
    assert "1: 5 'w5'" in str(report)
    assert len(sb.head(folder, vocab="tokenizer").to_dict()["rows"]["known_unused"]) == 0
    assert sb.argmaxable(folder).to_dict()["padding"]["first"] == TOKENS


def test_a_model_without_a_tokenizer_or_with_pickled_weights(save: Save) -> None:
    folder = save("llama")
    exact = sb.head(folder).to_dict()
    for file in folder.glob("tokenizer*"):
        file.unlink()
    assert sb.head(folder).to_dict()["weight"] == exact["weight"]
    assert sb.argmaxable(folder).vocab == TOKENS
    with quiet() as transformers:
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert sb.head(loaded).to_dict()["weight"] == exact["weight"]
    torch.save(loaded.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert sb.head(folder, allow_pickle=True).to_dict()["weight"] == exact["weight"]


def test_a_model_with_another_head(save: Save, tmp_path: Path) -> None:
    with quiet() as transformers:
        plain = transformers.AutoModelForCausalLM.from_pretrained(save("phi"))
        model = sb.integrations.transformers.with_head(plain, "mos", components=2)
        model.get_output_embeddings().head.bias.data.normal_()
        model.save_pretrained(tmp_path / "mos")
    layer, head = output_weights(tmp_path / "mos"), model.get_output_embeddings().head
    assert torch.equal(layer.weight, head.weight)
    assert torch.equal(layer.bias, head.bias)  # type: ignore[arg-type]
    assert layer.tied is False
    assert (layer.source["head"], sb.head(tmp_path / "mos").bound.raw) == ("mos", None)
