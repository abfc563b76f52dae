"""A rank that was killed continues at the block it had reached; of a store that changed it starts anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck import dump
from softmax_bottleneck.language_models import source as base
from softmax_bottleneck.sources import open_source

DRIVER = Path(__file__).parent / "rank_driver.py"
MANY = 1000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of 60 × 12 float64 in eight chunks."""
    monkeypatch.setattr(base, "BLOCK_BYTES", 8 * 12 * 8)
    return make(tmp_path / "s.zarr", seed=0)


def make(path: Path, *, seed: int) -> Path:
    matrix = np.random.default_rng(seed).standard_normal((60, 12))
    return dump(open_source(matrix, kind="logits"), path)


def run(store: Path, method: str, *, updates: int = MANY, width: int = 5) -> tuple[int, dict[str, Any], int]:
    """Return the exit code, the report, and how many updates it took."""
    environment = {**os.environ, "UPDATES": str(updates), "XDG_CACHE_HOME": str(store.parent / "cache")}
    options = ["rank", str(store), "--method", method, "--width", str(width), "--json", "-"]
    done = subprocess.run(
        [sys.executable, str(DRIVER), *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    report = json.loads(done.stdout) if done.stdout else {}
    for changing in ("seconds", "peak_memory_bytes"):
        report.pop(changing, None)
    left = [line for line in done.stderr.splitlines() if line.startswith("updates left: ")]
    return done.returncode, report, updates - int(left[0].split()[-1]) if left else -1


def kept(store: Path) -> list[Path]:
    return list((store.parent / "cache").rglob("*.npz"))


@pytest.mark.parametrize(("method", "killed_after", "all_updates"), [("tsqr", 5, 8), ("sketch", 11, 16)])
def test_it_continues_to_the_same_numbers(store: Path, method: str, killed_after: int, all_updates: int) -> None:
    code, expected, updates = run(store, method)
    assert (code, updates, kept(store)) == (0, all_updates, [])
    assert run(store, method, updates=killed_after)[0] == -9
    assert len(kept(store)) == 1
    assert run(store, method) == (0, expected, all_updates - killed_after)
    assert kept(store) == []


def test_another_width_starts_anew(store: Path) -> None:
    """A sketch of another width is another computation, in the second pass too."""
    expected = run(store, "sketch", width=7)
    assert run(store, "sketch", updates=11)[0] == -9
    assert run(store, "sketch", width=7) == expected


def test_a_store_that_changed_starts_anew(store: Path) -> None:
    assert run(store, "tsqr", updates=5)[0] == -9
    other = make(store.parent / "other.zarr", seed=1)
    store.rename(store.parent / "old.zarr")
    other.rename(store)
    code, report, updates = run(store, "tsqr")
    assert (code, updates) == (0, 8)
    assert report["rank"]["value"] == 12
    assert len(kept(store)) == 1  # that of the other store, whose computation may still be resumed
