"""A corpus of a few hundred tokens that has something to learn, and runs that take a fraction of a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck.training import RunConfig
from softmax_bottleneck.training.config import parse


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
def configure(corpus: Path) -> Callable[..., RunConfig]:
    """A configuration of a tiny run: ``head``, ``backbone`` and ``optimizer``, and the rest for training."""

    def configure(
        *,
        head: dict[str, Any] | None = None,
        backbone: dict[str, Any] | None = None,
        optimizer: dict[str, Any] | None = None,
        **training: Any,
    ) -> RunConfig:
        return parse(
            {
                "corpus": str(corpus),
                "seed": training.pop("seed", 3),
                "model": {
                    "backbone": backbone
                    or {
                        "name": "lstm",
                        "embedding_size": 4,
                        "hidden_size": 8,
                        "layers": 2,
                        "dropout": training.pop("dropout", 0.2),
                    },
                    "head": {"embedding_size": 4, **(head or {"name": "mos", "components": 2})},
                },
                "training": {
                    "epochs": 2,
                    "batch_size": 4,
                    "bptt": 12,
                    "save_every": 5,
                    "optimizer": {"learning_rate": 0.02, "warmup_steps": 3, **(optimizer or {})},
                    **training,
                },
            },
            where="the test",
        )

    return configure


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Every file of a run by name, hidden ones too; without the wall-clock times, which may differ."""

    def contents(folder: Path) -> dict[str, bytes]:
        found = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        found.pop("timing.jsonl", None)
        return found

    return contents
