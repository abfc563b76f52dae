"""Causal language models of transformers, a sample by kind, at default options and sizes of a few kilobytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

import softmax_bottleneck as sb
from softmax_bottleneck.errors import SourceError
from softmax_bottleneck.hugging_face.loading import quiet

M, WINDOW = 60, 32
IDS = torch.randint(3, M, (1100,), generator=torch.Generator().manual_seed(0))
"""A text longer than any window."""
SIZES = {
    "layers": 2, "n_layer": 2, "experts_per": 2, "topk": 2, "expert": 4, "n_positions": WINDOW, "max_position": WINDOW,
    "max_seq": WINDOW, "max_target": WINDOW, "n_ctx": WINDOW, "heads": 2, "n_head": 2, "head_dim": 8, "d_head": 8,
    "rank": 8, "inter": 32, "ffn": 32, "inner": 32, "vocab_size": M, "n_words": M, "embd": 16, "emb_dim": 16,
    "d_model": 16, "hidden": 16, "embed": 16,
}  # fmt: skip
"""What numbers become, by the first part of their names that is here."""
ROTARY = ("Llama", "Gemma2", "Cohere", "Falcon", "Mixtral", "JetMoe", "Qwen3_5")
TABLE = ("GPT2", "OPT", "BioGpt", "XGLM", "CTRL", "XLM", "Bart", "Whisper", "TrOCR")
PADDED_TABLE = ("Roberta", "Camembert", "Data2VecText", "Bert", "Electra")
OTHER_NAME_OR_NONE = ("Mpt", "Bloom", "Mamba", "Rwkv", "RecurrentGemma")
DECODES = {**dict.fromkeys(PADDED_TABLE, "is_decoder"), "XLM": "causal"}
"""Settings without which these models look ahead."""
REFUSED = {
    "Bert": "looks ahead: .*; if it was trained as one, set is_decoder to true in its configuration",
    "XLNet": "looks ahead: its hidden states change with the tokens after them",
    "ProphetNet": "cannot read 30 tokens of text: index out of range in self; set another context_length",
    "Xmod": r"Input language unknown\. Please call `XmodPreTrainedModel\.set_default_language\(\)`",
}


def _small(config: Any) -> dict[str, Any]:
    """Return the settings of a configuration and of those in it, with small numbers."""
    settings: dict[str, Any] = {}
    for name, value in config.to_dict().items():
        part = getattr(config, name, None)
        if isinstance(part, transformers.PreTrainedConfig):
            settings[name] = {**_small(part), "model_type": part.model_type}
        elif name in ("layer_types", "mlp_layer_types", "block_types"):
            settings[name] = value and value[:2]
        elif name.endswith("token_id"):
            settings[name] = 1 if isinstance(value, int) else value
        elif isinstance(value, int) and not isinstance(value, bool):
            size = next((size for part, size in SIZES.items() if part in name), value)
            settings[name] = min(value, size)
    return settings


def _model(name: str, **settings: Any) -> Any:
    with quiet():
        torch.manual_seed(0)
        kind = getattr(transformers, f"{name}Config")
        config = kind(**{**_small(kind()), **settings})
        model = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[kind]
        fitting = (each for each in (config, *vars(config).values()) if isinstance(each, model.config_class))
        return model(next(fitting, config)).eval()


@pytest.mark.parametrize("name", ROTARY + TABLE + PADDED_TABLE + OTHER_NAME_OR_NONE)
def test_a_text_longer_than_the_window_is_read_at_default_options(name: str) -> None:
    report = sb.rank(_model(name, **dict.fromkeys(filter(None, [DECODES.get(name)]), True)), data=IDS, contexts=20)
    assert report.rank.value > 1
    assert report.source["context_length"] in (WINDOW, WINDOW - 2, 1024)


@pytest.mark.parametrize("name", REFUSED)
def test_or_it_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(SourceError, match=REFUSED[name]):
        sb.rank(_model(name), data=IDS, contexts=20)
