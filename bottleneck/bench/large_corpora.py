"""``bottleneck bench corpora``: a few hundred steps on a part of a text with the loaders of text8 and one-billion.

It shows that ids are read from their files, that the loss falls, and that memory does not grow during training. The
models are those of the presets with smaller layers.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from .. import corpora
from ..core.files import CACHE_VARIABLE, cache_folder, sha256_bytes
from ..core.machine import status
from ..core.progress import SILENT, Progress
from ..corpora import text8
from ..corpora.one_billion import SHARDS
from ..errors import ConfigurationError
from ..training import fit, override
from ..training.presets import find
from .in_turn import Work, in_turn, report

ROUNDS = 10
"""Number of validations, each with losses and memory."""
CASES = {
    "text8": {"preset": "text8-mos7", "batch_size": 32, "bptt": 100},
    "one-billion": {"preset": "1b-mos7", "batch_size": 20, "bptt": 35},
}
SETTINGS = (
    "backbone.hidden_size=128", "backbone.embedding_size=32", "head.embedding_size=32", "training.epochs=1",
    f"training.validations={ROUNDS}", "training.optimizer.name=adamw", "training.optimizer.learning_rate=0.005",
    "training.optimizer.warmup_steps=10",
)  # fmt: skip
"""Settings of both models in place of the presets'."""


def bench_corpora(text: Path, *, steps: int = 300, progress: Progress = SILENT) -> dict[str, Any]:
    """Train ``text8-mos7`` and ``1b-mos7`` with small layers on a cut of a text, each in a process of its own.

    Args:
        text: UTF-8, words between spaces, a sentence a line. For text8 its letters are lower-cased and everything else
            becomes a space; for one-billion its lines are dealt out to the shards of the benchmark.
        steps: updates of each, one epoch.
        progress: where to report.

    Returns:
        The result of `in_turn.report`, with ``steps``. Each case has the ``tokens`` of its splits, the size ``vocab``
        of its vocabulary, the bytes of its ids, ``rounds`` (step, training and validation loss since the round before,
        bytes of memory that are not the contents of a file), and the test loss.

    Raises:
        ConfigurationError: the text is too short, or the steps too few.
        BottleneckError: a training failed.
    """
    if steps < ROUNDS:
        raise ConfigurationError(f"loss and memory are noted {ROUNDS} times: give at least as many steps, not {steps}")
    rows: dict[str, Any] = {}
    for corpus, sizes in CASES.items():
        case = partial(_work, corpus=corpus, text=str(text.resolve()), steps=steps, **sizes)
        rows |= in_turn({corpus: case}, runs=1, warm_up=False, progress=progress)
    return report(rows, steps=steps)


def prepare_text8(text: str, tokens: int) -> None:
    """Write a cut of a text, with so many training tokens, where the loader of text8 finds its ids.

    Letters are in lower case, and one space stands for all that is between them.
    """
    held_out = tokens // 18  # 5 of the 90 hundredths
    sizes = {"train": tokens, "valid": held_out, "test": held_out}
    data = re.sub(rb"[^a-z]+", b" ", Path(text).read_bytes().lower())[: sum(sizes.values())]
    if len(data) < (needed := sum(sizes.values())):
        raise ConfigurationError(f"{text} has {len(data):,} letters and spaces; give a text with {needed:,}")
    text8.write(cache_folder() / "corpora" / text8.NAME, data, tokens=sizes, sha256=sha256_bytes(data))


def prepare_one_billion(text: str, tokens: int) -> None:
    """Deal out a cut of a text, with so many training tokens, to the shards of the benchmark, and import them."""
    lines, used, last = Path(text).read_bytes().splitlines(keepends=True), 0, 0
    while last < len(lines) and used < tokens:
        used += len(lines[last].split()) + 1
        last += 1
    held_out = lines[last : last + max(5, last // 20)]
    if used < tokens or len(held_out) < 5 or last < len(SHARDS["train"]):
        raise ConfigurationError(f"{text} has fewer than the {tokens:,} words, and lines for all shards")
    with tempfile.TemporaryDirectory() as folder:
        names = SHARDS["valid"] + SHARDS["test"]
        for shards, dealt in ((SHARDS["train"], lines[:last]), (names, held_out)):
            for number, name in enumerate(shards):
                file = Path(folder, name)
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(b"".join(dealt[number :: len(shards)]))
        corpora.get("one-billion", sources=[Path(folder)])


class _Memory(Progress):
    """A progress display that records the memory at each validation."""

    def __init__(self) -> None:
        self.bytes: list[int] = []

    def line(self, text: str) -> None:
        if text.startswith("epoch"):
            self.bytes.append(status("RssAnon"))


def _work(**case: Any) -> Work:
    return lambda: _train(**case)


def _train(*, corpus: str, preset: str, text: str, steps: int, batch_size: int, bptt: int) -> dict[str, Any]:
    tokens = batch_size * (steps * bptt + 1)  # as many as the steps need
    sizes = [f"training.batch_size={batch_size}", f"training.bptt={bptt}"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE_VARIABLE] = folder  # only for this process, so that the user's corpora are not changed
        {"text8": prepare_text8, "one-billion": prepare_one_billion}[corpus](text, tokens)
        texts, memory = corpora.load(corpus), _Memory()
        config = override(find(preset).config, [*SETTINGS, *sizes])
        run = fit(config, Path(folder, "run"), device="cpu", progress=memory)
        rows = [json.loads(row) for row in Path(run.path, "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        return {
            "preset": preset,
            "tokens": {split: len(texts.split(split)) for split in corpora.SPLITS},
            "vocab": len(texts.vocabulary),
            "ids_bytes": sum(file.stat().st_size for file in corpora.path(corpus).glob("*.ids")),
            "rounds": [
                {key: row[key] for key in ("step", "train_loss", "valid_loss")} | {"memory_bytes": size}
                for row, size in zip(rows[:-1], memory.bytes, strict=True)
            ],
            "test_loss": run.test.loss,
        }
