"""Output layers that are bypassed or tied in name alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.nn import functional as F

import softmax_bottleneck as sb
from softmax_bottleneck.errors import SourceError

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
