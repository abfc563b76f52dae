"""``bottleneck bench hugging-face``: time and memory of a rank measurement beside the model's forward pass."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.full_precision import full_precision
from ..core.options import HuggingFaceOptions
from ..core.progress import SILENT, Progress
from ..hugging_face import HuggingFaceOnText
from ..hugging_face.loading import quiet
from ..measure import rank
from ..sources import open_source
from .in_turn import Work, in_turn, report

SIZES = {
    "gpt2": {"vocab_size": 50_257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024},
    "tiny": {"vocab_size": 500, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32},
}
"""The shape of GPT-2 small (Radford et al. 2019, table 2), and a tiny one for tests."""
FORWARD, ONCE, AFTER = "forward pass", "forward pass, no overlap", "rank after it"
"""Names of the cases."""
RATIOS = {"after / forward": FORWARD, "after / forward, no overlap": ONCE}


def bench_hugging_face(*, size: str = "gpt2", contexts: int = 4096, progress: Progress = SILENT) -> dict[str, Any]:
    """Measure the time of a random model's forward pass over a text, and of the rank of its outputs after it.

    Windows overlap by half, so that the forward pass processes each token twice; another case has no overlap. Each case
    runs in its own process.

    Args:
        size: a name in `SIZES`.
        contexts: T.
        progress: progress display.

    Returns:
        The result of `in_turn.report`, with ``size``, ``contexts`` and ``ratios``. Memory is that above the loaded
        model.
    """
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), size, contexts)
        strides = {FORWARD: None, ONCE: SIZES[size]["n_positions"], AFTER: None}
        cases = {
            name: partial(_work, Path(folder), contexts=contexts, stride=stride, ranked=name == AFTER)
            for name, stride in strides.items()
        }
        rows = in_turn(cases, runs=1, warm_up=False, imports=["transformers"], progress=progress)
    ratios = {what: rows[AFTER]["seconds"] / rows[other]["seconds"] for what, other in RATIOS.items()}
    return report(rows, size=size, contexts=contexts, ratios=ratios)


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


def _work(folder: Path, *, contexts: int, stride: int | None, ranked: bool) -> Work:
    """Load the model, and return a function that ranks its states, or runs its forward pass."""
    options = HuggingFaceOptions(batch_size=1)
    if stride is not None:
        options["stride"] = stride
    source = open_source(folder, data=str(folder / "text.txt"), contexts=contexts, hugging_face=options)
    assert isinstance(source, HuggingFaceOnText)
    _ = source.head
    if not ranked:
        return partial(_forward, source)
    for _ in source.hidden(source.ranges()):  # the source keeps its states
        pass
    return partial(_rank, source)


def _forward(source: HuggingFaceOnText) -> dict[str, Any]:
    tokens, body = 0, source.model.body
    with full_precision():
        for ids in source.windows():
            body(ids.unsqueeze(0), use_cache=False)
            tokens += len(ids)
    return {"tokens": tokens}


def _rank(source: HuggingFaceOnText) -> dict[str, Any]:
    values = rank(source)
    return {"rank": values.rank.value, "rank_centered": values.rank_centered.value}
