"""A rank that was killed continues at the block that it had reached; that of a store that changed starts anew."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck import dump, rank
from softmax_bottleneck.core.files import CACHE_VARIABLE
from softmax_bottleneck.language_models import source as base
from softmax_bottleneck.sources import open_source

from . import rank_driver


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of 60 × 12 float64 in eight chunks, whose rank keeps its state after each of them."""
    with monkeypatch.context() as patch:
        patch.setattr(base, "BLOCK_BYTES", 8 * 12 * 8)
        path = make(tmp_path / "s.zarr", seed=0)
    for module, name, value in rank_driver.SETTINGS:
        monkeypatch.setattr(module, name, value)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return path


def make(path: Path, *, seed: int) -> Path:
    matrix = np.random.default_rng(seed).standard_normal((60, 12))
    return dump(open_source(matrix, kind="logits"), path)


def run(store: Path, method: str, *, width: int = 5) -> tuple[dict[str, Any], int]:
    """Return the report, and how many blocks it took."""
    before = rank_driver.blocks_taken
    report = rank(store, method=method, width=width).to_dict()
    values = {key: value for key, value in report.items() if key not in ("seconds", "spent", "peak_memory_bytes")}
    return values, rank_driver.blocks_taken - before


def kill(store: Path, method: str, *, after: int) -> None:
    """Start the rank as a program that is killed after some blocks."""
    command = [sys.executable, "-m", "measure.rank_driver", str(store), method, "5", str(after)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], env=os.environ, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert len(unfinished(store)) == (2 if method == "sketch" else 1)


def unfinished(store: Path) -> list[Path]:
    return list((store.parent / "cache").rglob("*.npz"))


@pytest.mark.parametrize(("method", "killed_after", "blocks"), [("tsqr", 5, 8), ("sketch", 11, 16)])
def test_it_continues_to_the_same_numbers(store: Path, method: str, killed_after: int, blocks: int) -> None:
    """Another store in its place, or a sketch of another width, is another computation."""
    expected = run(store, method)
    assert (expected[1], unfinished(store)) == (blocks, [])
    wider = run(store, method, width=7)
    kill(store, method, after=killed_after)
    if method == "sketch":  # in the second pass too
        assert run(store, method, width=7) == wider
    else:
        old = store.rename(store.parent / "old.zarr")
        make(store, seed=1)
        assert run(store, method)[1] == -(-60 // len(open_source(store).ranges()[0]))
        assert len(unfinished(store)) == 1  # that of the first store, which may still be resumed
        shutil.rmtree(store)
        old.rename(store)
    assert run(store, method) == (expected[0], blocks - killed_after)
    assert unfinished(store) == []
