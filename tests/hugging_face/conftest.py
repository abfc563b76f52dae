"""Tiny models of many architectures with random weights, as ``save_pretrained`` writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from softmax_bottleneck.hugging_face.loading import quiet
from softmax_bottleneck.sources import open_source

TOKENS = 60
d = 8
_ATTENTION: dict[str, Any] = {
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "hidden_size": d,
    "intermediate_size": 16,
}
GROUPED = {**_ATTENTION, "num_key_value_heads": 1}


@dataclass(frozen=True)
class Architecture:
    """What algebra says of one, and how to make it small."""

    name: str
    """``NAMEForCausalLM`` or ``NAMELMHeadModel``, and ``NAMEConfig``."""
    settings: dict[str, Any] = field(default_factory=dict)
    norm: str = "rms"
    """``"layer"``: a LayerNorm with offset before the output layer."""
    bias: bool = False
    rows: int = TOKENS
    """Number of rows of the output layer."""
    soft_cap: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """The bound, which random weights reach: behind a LayerNorm with offset a bias adds nothing."""
        beside = int(self.bias and self.norm == "rms")
        return d + 1 + beside, d + beside


ARCHITECTURES = {
    "gpt2": Architecture("GPT2", {"n_embd": d, "n_layer": 1, "n_head": 2, "n_positions": 64}, norm="layer"),
    "llama": Architecture("Llama", GROUPED),
    "qwen2": Architecture("Qwen2", GROUPED),
    "qwen3": Architecture("Qwen3", {**GROUPED, "head_dim": 4}),
    "mistral": Architecture("Mistral", GROUPED),
    "gemma2": Architecture("Gemma2", {**GROUPED, "head_dim": 4, "final_logit_softcapping": 3.0}, soft_cap=True),
    "phi": Architecture("Phi", _ATTENTION, norm="layer", bias=True),
    "opt": Architecture(
        "OPT",
        {"hidden_size": d, "ffn_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "word_embed_proj_dim": d},
        norm="layer",
    ),
    "gpt-neox": Architecture("GPTNeoX", _ATTENTION, norm="layer", rows=TOKENS + 12),
    "mamba": Architecture("Mamba", {"hidden_size": d, "state_size": 4, "num_hidden_layers": 1}),
    "rwkv": Architecture("Rwkv", {"hidden_size": d, "attention_hidden_size": d, "num_hidden_layers": 2}, norm="layer"),
}


Save = Callable[..., Path]
Open = Callable[..., Any]


def write_tokenizer(folder: Path, tokens: int = TOKENS) -> None:
    """Write a tokenizer of whole words w0, w1, … whose last token stands for unknown ones."""
    vocabulary = {f"w{number}": number for number in range(tokens - 1)} | {"<unk>": tokens - 1}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    with quiet() as transformers:
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """Change the tensors in a model's file; return the folder."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
def save(tmp_path_factory: pytest.TempPathFactory) -> Save:
    """Save a model with random weights, all of them: norms and biases too."""

    def save(
        kind: str | Architecture,
        *,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        spread: float = 0.5,
        **settings: Any,
    ) -> Path:
        architecture = ARCHITECTURES[kind] if isinstance(kind, str) else kind
        folder = tmp_path_factory.mktemp(architecture.name)
        with quiet() as transformers:
            classes = (f"{architecture.name}ForCausalLM", f"{architecture.name}LMHeadModel")
            make = next(getattr(transformers, each) for each in classes if hasattr(transformers, each))
            values = {"vocab_size": architecture.rows, **architecture.settings, **settings}
            config = getattr(transformers, f"{architecture.name}Config")(**values)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = make(config)
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.add_(spread * torch.randn_like(parameter))
            model.to(dtype).save_pretrained(folder)
        write_tokenizer(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred and one random words."""
    words = np.random.default_rng(0).integers(0, TOKENS - 1, 201)
    file = tmp_path_factory.mktemp("text") / "words.txt"
    file.write_text(" ".join(f"w{word}" for word in words), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def open_model(text: Path) -> Open:
    """Open a model on the text, in windows of sixteen."""

    def open_model(folder: Path | str, *, dtype: str = "float32", contexts: int | None = None, **options: Any) -> Any:
        options = {"context_length": 16, "stride": 8, **options}
        return open_source(folder, data=str(text), dtype=dtype, contexts=contexts, **options)

    return open_model
