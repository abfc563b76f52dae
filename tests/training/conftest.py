"""A corpus of a few hundred tokens that has something to learn, and runs that take a fraction of a second."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck.core.progress import Progress
from softmax_bottleneck.training import FitResult, RunConfig, fit
from softmax_bottleneck.training.config import parse

Configure = Callable[..., RunConfig]
AWD = {"name": "awd-lstm", "embedding_size": 4, "hidden_sizes": [7, 6]}
SGD = {"name": "sgd", "learning_rate": 2.0, "schedule": "constant", "warmup_steps": 0}


class Lines(Progress):
    """The lines of a progress report."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


def train(config: RunConfig, folder: Path, **options: Any) -> FitResult:
    """Train on the CPU."""
    return fit(config, folder, device="cpu", **options)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Read a run's metrics."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run by name, hidden ones too; without the wall-clock times, which may differ."""
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    files.pop("timing.jsonl", None)
    return files


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve words; each is followed by one of the next two."""
    folder, generator = tmp_path_factory.mktemp("corpus"), np.random.default_rng(0)
    for split, lines in (("train", 60), ("valid", 12), ("test", 12)):
        steps = generator.integers(1, 3, size=(lines, 9))
        rows = [" ".join(f"w{place % 12}" for place in np.cumsum(row)) for row in steps]
        (folder / f"{split}.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def configure(corpus: Path) -> Configure:
    """A configuration of a tiny run: ``head``, ``backbone``, ``optimizer`` and ``dropout``, the rest for training."""

    def configure(
        *,
        head: dict[str, Any] | None = None,
        backbone: dict[str, Any] | None = None,
        optimizer: dict[str, Any] | None = None,
        dropout: float = 0.2,
        seed: int = 3,
        **training: Any,
    ) -> RunConfig:
        lstm = {"name": "lstm", "embedding_size": 4, "hidden_size": 8, "layers": 2, "dropout": dropout}
        head = {"embedding_size": 4, **(head or {"name": "mos", "components": 2})}
        optimizer = {"learning_rate": 0.02, "warmup_steps": 3, **(optimizer or {})}
        settings = {"epochs": 2, "batch_size": 4, "bptt": 12, "save_every": 5, "optimizer": optimizer, **training}
        model = {"backbone": backbone or lstm, "head": head}
        return parse({"corpus": str(corpus), "seed": seed, "model": model, "training": settings}, where="the test")

    return configure


@pytest.fixture
def pairs_config(talk_folder: Path) -> RunConfig:
    """A configuration of a tiny run that reads pairs."""
    sizes = {"embedding_size": 4, "line_size": 4, "context_size": 6, "hidden_size": 8, "context_lines": 3}
    model = {
        "backbone": {"name": "encoder-decoder", "dropout": 0.1, **sizes},
        "head": {"name": "mos", "embedding_size": 4, "components": 2},
    }
    training = {"epochs": 2, "batch_size": 8, "save_every": 4, "optimizer": {"learning_rate": 0.02}}
    return parse({"corpus": str(talk_folder), "seed": 3, "model": model, "training": training}, where="the test")
