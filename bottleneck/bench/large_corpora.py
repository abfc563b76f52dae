"""``bottleneck bench corpora``: a few hundred steps on a part of a text with the loaders of text8 and one-billion.

It shows that ids are read from their files, that the loss falls, and that memory does not grow during training. The
models are those of the presets with smaller layers.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .. import corpora
from ..core.files import CACHE_VARIABLE, cache_folder, sha256_bytes
from ..core.machine import machine, status
from ..core.progress import SILENT, Progress
from ..core.version import __version__
from ..corpora import text8
from ..corpora.one_billion import SHARDS
from ..errors import ConfigurationError
from ..training import fit, override
from ..training.presets import find
from .in_turn import in_turn

ROUNDS = 10
"""Number of validations, each with losses and memory."""
HIDDEN, EMBEDDING = 128, 32
"""Size of the LSTM and d, in place of the presets'."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training run."""

    corpus: str
    preset: str
    text: str
    """File the cut is made from."""
    steps: int
    batch_size: int
    bptt: int

    @property
    def tokens(self) -> int:
        """Number of training tokens: as many as the steps need."""
        return self.batch_size * (self.steps * self.bptt + 1)


def bench_corpora(text: Path, *, steps: int = 300, progress: Progress = SILENT) -> dict[str, Any]:
    """Train ``text8-mos7`` and ``1b-mos7`` with small layers on a cut of a text, each in a process of its own.

    Args:
        text: UTF-8, words between spaces, a sentence a line. For text8 its letters are lower-cased and everything else
            becomes a space; for one-billion its lines are dealt out to the shards of the benchmark.
        steps: updates of each, one epoch.
        progress: where to report.

    Returns:
        ``machine`` and ``cases``: for each the tokens of its splits, the bytes of its ids, ``rounds`` (step, training
        and validation loss since the round before, bytes of memory that are no file's contents), and seconds.

    Raises:
        ConfigurationError: the text is too short, or the steps too few.
        BottleneckError: a training failed.
    """
    if steps < ROUNDS:
        raise ConfigurationError(f"loss and memory are noted {ROUNDS} times: give at least as many steps, not {steps}")
    cases = (
        Case(corpus="text8", preset="text8-mos7", text=str(text.resolve()), steps=steps, batch_size=32, bptt=100),
        Case(corpus="one-billion", preset="1b-mos7", text=str(text.resolve()), steps=steps, batch_size=20, bptt=35),
    )
    results = {}
    for case in cases:
        measured = in_turn({case.corpus: partial(_work, case)}, runs=1, warm_up=False, progress=progress)[case.corpus]
        results[case.corpus] = {**measured.result, "seconds": measured.seconds}
    return {"machine": machine(), "steps": steps, "cases": results, "version": __version__}


def text8_cut(text: bytes) -> bytes:
    """Return a text in text8's alphabet: letters in lower case, and one space for all that is between them."""
    return re.sub(rb"[^a-z]+", b" ", text.lower())


def _prepare_text8(case: Case) -> None:
    held_out = case.tokens // 18  # 5 of the 90 hundredths
    sizes = {"train": case.tokens, "valid": held_out, "test": held_out}
    data = text8_cut(Path(case.text).read_bytes())[: sum(sizes.values())]
    if len(data) < sum(sizes.values()):
        raise ConfigurationError(
            f"{case.text} has {len(data):,} letters and spaces; give a text with {sum(sizes.values()):,}"
        )
    text8.write(cache_folder() / "corpora" / text8.NAME, data, tokens=sizes, sha256=sha256_bytes(data))


def _prepare_one_billion(case: Case) -> None:
    lines, used, last = Path(case.text).read_bytes().splitlines(keepends=True), 0, 0
    while last < len(lines) and used < case.tokens:
        used += len(lines[last].split()) + 1
        last += 1
    held_out = lines[last : last + max(5, last // 20)]
    if used < case.tokens or len(held_out) < 5 or last < len(SHARDS["train"]):
        raise ConfigurationError(f"{case.text} has fewer than the {case.tokens:,} words, and lines for all shards")
    with tempfile.TemporaryDirectory() as folder:
        names = SHARDS["valid"] + SHARDS["test"]
        for shards, text in ((SHARDS["train"], lines[:last]), (names, held_out)):
            for number, name in enumerate(shards):
                file = Path(folder, name)
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(b"".join(text[number :: len(shards)]))
        corpora.get(case.corpus, sources=[Path(folder)])


class _Memory(Progress):
    """A progress display that records the memory at each validation."""

    def __init__(self) -> None:
        self.bytes: list[int] = []

    def line(self, text: str) -> None:
        if text.startswith("epoch"):
            self.bytes.append(status("RssAnon"))


def _train(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE_VARIABLE] = folder  # only for this process, so that the user's corpora are not changed
        {"text8": _prepare_text8, "one-billion": _prepare_one_billion}[case.corpus](case)
        corpus = corpora.load(case.corpus)
        settings = [
            f"backbone.hidden_size={HIDDEN}", f"backbone.embedding_size={EMBEDDING}",
            f"head.embedding_size={EMBEDDING}", "training.epochs=1", f"training.batch_size={case.batch_size}",
            f"training.bptt={case.bptt}", f"training.validations={ROUNDS}", "training.optimizer.name=adamw",
            "training.optimizer.learning_rate=0.005", "training.optimizer.warmup_steps=10",
        ]  # fmt: skip
        memory = _Memory()
        run = fit(override(find(case.preset).config, settings), Path(folder, "run"), device="cpu", progress=memory)
        rows = [json.loads(row) for row in Path(run.path, "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        return {
            "preset": case.preset,
            "tokens": {split: len(corpus.split(split)) for split in corpora.SPLITS},
            "vocab": len(corpus.vocabulary),
            "ids_bytes": sum(file.stat().st_size for file in (corpora.path(case.corpus)).glob("*.ids")),
            "rounds": [
                {key: row[key] for key in ("step", "train_loss", "valid_loss")} | {"memory_bytes": size}
                for row, size in zip(rows[:-1], memory.bytes, strict=True)
            ],
            "test_loss": run.test.loss,
        }


def _work(case: Case) -> Callable[[], dict[str, Any]]:
    return lambda: _train(case)
