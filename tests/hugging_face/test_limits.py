"""Output layers that are bypassed or tied in name alone, and files of a head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.nn import functional as F

import softmax_bottleneck as sb
from softmax_bottleneck.errors import SourceError
from softmax_bottleneck.integrations.transformers import from_pretrained, with_head

from .conftest import change_weights, write_tokenizer

M = 60
SIZES = {"vocab_size": M, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
IDS = torch.randint(2, M, (200,), generator=torch.Generator().manual_seed(0))


def test_a_failure_for_its_length_names_the_option() -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    embeddings = model.model.embed_tokens.forward

    def short(ids: Any) -> Any:
        if ids.shape[1] > 20:
            raise IndexError("index out of range in self")
        return embeddings(ids)

    model.model.embed_tokens.forward = short
    with pytest.raises(
        SourceError, match=r"LlamaForCausalLM cannot read 64 tokens of text: .*set another context_leng"
    ):
        sb.rank(model, data=IDS, context_length=100)


def test_a_bypassed_output_layer_is_told_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))

    def forward(self: Any, input_ids: Any, **_: Any) -> Any:
        hidden = self.model(input_ids).last_hidden_state
        return transformers.modeling_outputs.CausalLMOutput(logits=F.linear(hidden, self.lm_head.weight))

    monkeypatch.setattr(transformers.LlamaForCausalLM, "forward", forward)
    with pytest.raises(SourceError, match=r"does not receive one hidden state .* measure it through a function"):
        sb.rank(model, data=IDS, context_length=16)


@pytest.mark.parametrize("name", ["Gemma", "Llama", "GPT2"])
def test_the_output_layer_that_should_be_tied_is_named(name: str, tmp_path: Path, text: Path) -> None:
    sizes = {"vocab_size": M, "n_embd": 8, "n_layer": 1, "n_head": 2} if name == "GPT2" else SIZES
    config = getattr(transformers, f"{name}Config")(**sizes, tie_word_embeddings=True)
    transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).save_pretrained(tmp_path)
    change_weights(tmp_path, lambda t: t.update({"lm_head.weight": torch.randn(M, 8)}))
    write_tokenizer(tmp_path)
    with pytest.raises(
        SourceError, match=r"layer of its own \(lm_head\.weight\), .*: set tie_word_embeddings to false$"
    ):
        sb.rank(tmp_path, data=str(text), context_length=16)


HEADS: dict[str, tuple[dict[str, Any], str]] = {
    "a parameter that is not the embeddings": ({"tied_to": "model.norm.weight"}, "tied_to is 'model.norm.weight', not"),
    "a regular expression": ({"tied_to": "(a+)+$"}, "tied_to is"),
    "a layer that is not one": ({"layer": "config"}, "layer is 'config', not 'lm_head'"),
    "another size": ({"settings": {"hidden_size": 9, "vocab_size": M}}, "settings.hidden_size is 9, not 8"),
    "no scale": ({"scale": None}, "scale"),
    "a scale that is not finite": ({"scale": float("nan")}, "scale"),
    "a number for a name": ({"head": 5}, "head"),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_of_another_model_is_refused(name: str, tmp_path: Path) -> None:
    changes, sentence = HEADS[name]
    config = transformers.LlamaConfig(**SIZES, tie_word_embeddings=True)
    with_head(transformers.LlamaForCausalLM(config), "softmax").save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | {"bottleneck_head": values["bottleneck_head"] | changes}))
    with pytest.raises(SourceError, match=sentence):
        from_pretrained(tmp_path)
