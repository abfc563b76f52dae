"""Small models of transformers with random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from softmax_bottleneck.integrations.transformers import with_head

M, d = 60, 8
SPECIAL = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
GROUPED = {
    "hidden_size": d, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 64, **SPECIAL,
}  # fmt: skip
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 4, "mamba_n_groups": 1, "mamba_d_state": 4}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {"n_embd": d, "n_layer": 2, "n_head": 2, "n_positions": 64, **SPECIAL}),
    "llama": ("LlamaForCausalLM", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", {**GROUPED, "tie_word_embeddings": True}),
    "mamba": ("MambaForCausalLM", {"hidden_size": d, "state_size": 4, "num_hidden_layers": 2, **SPECIAL}),
}
TIED = {"gpt2", "qwen2", "mamba"}
IDS = torch.randint(M, (3, 12), generator=torch.Generator().manual_seed(2))


def make(name: str, **settings: Any) -> Any:
    """Return one of the models, or one of a class by its name, in evaluation mode."""
    name, given = MODELS.get(name, (name, {}))
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    return kind(kind.config_class(**{"vocab_size": M, **given, **settings})).eval()


@pytest.fixture
def headed() -> Any:
    """A Llama under a mixture of softmaxes."""
    return with_head(make("llama"), "mos", components=2)
