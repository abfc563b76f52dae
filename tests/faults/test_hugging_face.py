"""Hugging Face folders whose settings, weights or tokenizers do not fit each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from attacks.damage import REMOVED, Damage, with_value

TOKENS = 21
SETTINGS: list[tuple[str, Any]] = [
    *(("architectures", value) for value in ("GPT2LMHeadModel", [5], ["BertForMaskedLM"])),
    *(("model_type", value) for value in (5, "gpt" * 2000, "novel", "bert")),
    *(("auto_map", value) for value in (5, {"AutoModelForCausalLM": "code.Model"})),
    *(("n_head", value) for value in (0, 3, "two", 10**30)),
    *(("n_embd", value) for value in (-4, 5, 8)),
    *(("n_layer", value) for value in (10**12, 2)),
    *(("vocab_size", value) for value in (-21, "many", 22)),
    *(("n_positions", value) for value in (0, 17)),
    *(("quantization_config", value) for value in (5, {"quant_method": "nonsense"})),
    ("text_config", "x"),
    ("is_encoder_decoder", "no"),
    ("activation_function", "\x1b[31m"),
    ("transformers_weights", "elsewhere.safetensors"),
    ("dtype", "float7"),
]


def _weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return apply


WTE, LN = "transformer.wte.weight", "transformer.ln_f.weight"
WEIGHTS: dict[str, Damage] = {
    "integers": _weights(lambda t: t.update({WTE: t[WTE].to(torch.int32)})),
    "not a number": _weights(lambda t: t[WTE].fill_(torch.nan)),
    "infinite": _weights(lambda t: t[LN].fill_(torch.inf)),
    "one lost": _weights(lambda t: t.pop(LN)),
    "one of another shape": _weights(lambda t: t.update({LN: torch.ones(7)})),
    "an output layer of its own, though it is tied": _weights(
        lambda t: t.update({"lm_head.weight": torch.randn(TOKENS, 4)})
    ),
    "cut short": lambda folder: (folder / "model.safetensors").write_bytes(
        (folder / "model.safetensors").read_bytes()[:-9]
    ),
    "no file": lambda folder: (folder / "model.safetensors").unlink(),
}


TOKENIZERS: dict[str, Damage] = {
    "negative ids": with_value("model.vocab.w3", -3),
    "ids outside the model": with_value("model.vocab.w3", 5_000),
    "ids beyond 64 bits": with_value("model.vocab.w3", 10**30),
    "texts as ids": with_value("model.vocab.w3", "three"),
    "no words": with_value("model.vocab", {}),
    "one token for all text": with_value("model.vocab", {"<unk>": 0}),
    "no model": with_value("model", REMOVED),
    "an unknown model": with_value("model.type", "\x1b[31mNovel"),
}
CASES: dict[str, tuple[str, Damage]] = {
    **{f"{key} {value!r}"[:40]: ("hf/config.json", with_value(key, value)) for key, value in SETTINGS},
    **{name: ("hf", change) for name, change in WEIGHTS.items()},
    **{name: ("hf/tokenizer.json", change) for name, change in TOKENIZERS.items()},
}


@pytest.mark.parametrize("name", CASES)
def test_a_folder_that_is_damaged(name: str, refusal: Callable[..., str]) -> None:
    refusal(("hf", "words.txt"), *CASES[name], "rank hf --data words.txt --contexts 20")
