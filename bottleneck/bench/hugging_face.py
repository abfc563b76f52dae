"""``bottleneck bench hugging-face``: time and memory of a rank measurement beside the model's forward pass."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.full_precision import full_precision
from ..core.machine import machine
from ..core.options import HuggingFaceOptions
from ..core.progress import SILENT, Progress
from ..core.version import __version__
from ..hugging_face import HuggingFaceOnText
from ..hugging_face.loading import quiet
from ..language_models import ModelOnText
from ..measure import rank
from ..sources import open_source
from .in_turn import in_turn

SIZES = {
    "gpt2": {"vocab_size": 50_257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024},
    "tiny": {"vocab_size": 500, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32},
}
"""The shape of GPT-2 small (Radford et al. 2019, table 2), and a tiny one for tests."""
FORWARD, ONCE, AFTER = "forward pass", "forward pass, no overlap", "rank after it"
"""Names of the cases."""


def bench_hugging_face(*, size: str = "gpt2", contexts: int = 4096, progress: Progress = SILENT) -> dict[str, Any]:
    """Measure the time of a random model's forward pass over a text, and of the rank of its outputs after it.

    Windows overlap by half, so that the forward pass processes each token twice; another case has no overlap. Each case
    runs in its own process.

    Args:
        size: a name in `SIZES`.
        contexts: T.
        progress: progress display.

    Returns:
        ``machine``, ``size``, ``contexts``, ``cases`` (seconds, bytes above the loaded model) and ``ratios``.
    """
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), size, contexts)
        works = {name: partial(_case, name, Path(folder), contexts) for name in (FORWARD, ONCE, AFTER)}
        cases = in_turn(works, runs=1, warm_up=False, imports=["transformers"], progress=progress)
    forward, once, after = (cases[name].result["seconds"] for name in (FORWARD, ONCE, AFTER))
    return {
        "machine": machine(),
        "size": size,
        "contexts": contexts,
        "cases": {name: case.to_dict() for name, case in cases.items()},
        "ratios": {"after / forward": after / forward, "after / forward, no overlap": after / once},
        "version": __version__,
    }


def _write(folder: Path, size: str, contexts: int) -> None:
    """Save a model with random weights, a tokenizer of whole words and a text."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    settings = SIZES[size]
    words = [f"w{number}" for number in range(settings["vocab_size"])]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    with quiet() as transformers, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings)).save_pretrained(folder)
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    length = contexts + settings["n_positions"] + 1
    ids = np.random.default_rng(0).integers(0, len(words), length)
    (folder / "text.txt").write_text(" ".join(words[token] for token in ids), encoding="utf-8")


def _case(name: str, folder: Path, contexts: int) -> Callable[[], Any]:
    """Load the model, and return a function that runs a case and returns its seconds."""
    options = HuggingFaceOptions(batch_size=1)
    if name == ONCE:
        length: int = json.loads((folder / "config.json").read_text(encoding="utf-8"))["n_positions"]
        options["stride"] = length
    opened = open_source(folder, data=str(folder / "text.txt"), contexts=contexts, hugging_face=options)
    assert isinstance(opened, HuggingFaceOnText)
    _ = opened.head
    return (lambda: _rank(opened)) if name == AFTER else (lambda: _forward(opened))


def _forward(model: HuggingFaceOnText) -> dict[str, float]:
    started, tokens, body = time.perf_counter(), 0, model.model.body
    with full_precision():
        for ids in model.windows():
            body(ids.unsqueeze(0), use_cache=False)
            tokens += len(ids)
    return {"seconds": time.perf_counter() - started, "tokens": tokens}


def _rank(source: ModelOnText) -> dict[str, Any]:
    for _ in source.hidden(source.ranges()):
        pass
    started = time.perf_counter()
    report = rank(source)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "rank": report.rank.value, "rank_centered": report.rank_centered.value}
