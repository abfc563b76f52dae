"""``bottleneck bench hugging-face``: time and memory of a rank measurement beside the model's forward pass."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ..core.full_precision import full_precision
from ..core.options import HuggingFaceOptions
from ..core.progress import SILENT, Progress
from ..hugging_face import HuggingFaceOnText
from ..measure import rank
from ..sources import open_source
from .in_turn import Work, in_turn, report

SIZES: dict[str, dict[str, Any]] = {
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

    Memory is that above the loaded model.

    Args:
        size: a name in `SIZES`.
        contexts: T.
        progress: where to report.
    """
    strides = {FORWARD: None, ONCE: SIZES[size]["n_positions"], AFTER: None}
    cases = {
        name: partial(_work, size=size, contexts=contexts, stride=stride, ranked=name == AFTER)
        for name, stride in strides.items()
    }
    rows = in_turn(cases, runs=1, warm_up=False, imports=["transformers"], progress=progress)
    ratios = {what: rows[AFTER]["seconds"] / rows[other]["seconds"] for what, other in RATIOS.items()}
    return report(rows, size=size, contexts=contexts, ratios=ratios)


def _work(*, size: str, contexts: int, stride: int | None, ranked: bool) -> Work:
    """Make the model and its text, and return a function that ranks its states, or runs its forward pass."""
    from transformers import GPT2Config, GPT2LMHeadModel

    settings = SIZES[size]
    torch.manual_seed(0)
    ids = torch.randint(settings["vocab_size"], (contexts + settings["n_positions"] + 1,))
    options = HuggingFaceOptions(batch_size=1, context_length=settings["n_positions"])
    if stride is not None:
        options["stride"] = stride
    model = GPT2LMHeadModel(GPT2Config(**settings)).eval()
    source = open_source(model, data=ids, contexts=contexts, hugging_face=options)
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
