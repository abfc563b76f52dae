"""Text8 and the 1B Word benchmark from a cut of a text: the loaders' own ids, a loss that falls, what is refused."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from softmax_bottleneck.bench import bench_corpora, large_corpora
from softmax_bottleneck.bench.large_corpora import prepare_one_billion, prepare_text8
from softmax_bottleneck.core.files import CACHE_VARIABLE
from softmax_bottleneck.errors import ConfigurationError


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Lines of words, each of which follows the one before it in the alphabet or skips one."""
    generator, words = np.random.default_rng(0), [letter * 3 for letter in string.ascii_uppercase]
    rows = [" ".join(words[place % 26] for place in np.cumsum(generator.integers(1, 3, 9))) for _ in range(1500)]
    (tmp_path / "text.txt").write_text("1,\n".join(rows), encoding="utf-8")
    return tmp_path / "text.txt"


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, here: Callable[..., list[set[str]]]) -> None:
    here()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


def test_losses_fall(text: Path) -> None:
    report = bench_corpora(text, steps=10)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    for case in report["cases"].values():
        losses = [one["valid_loss"] for one in case["rounds"]]
        assert len(losses) == large_corpora.ROUNDS
        assert losses[-1] < losses[0]
        assert case["ids_bytes"] == 8 * sum(case["tokens"].values())
        assert all(one["memory_bytes"] > 2**20 for one in case["rounds"])
    assert report["cases"]["text8"]["tokens"]["train"] == 32 * (10 * 100 + 1)
    used = text.read_text(encoding="utf-8").lower().splitlines()[: 20 * (10 * 35 + 1) // 10]
    assert report["cases"]["one-billion"]["vocab"] == 2 + len({word for line in used for word in line.split()})


def test_what_is_refused(text: Path) -> None:
    with pytest.raises(ConfigurationError, match="loss and memory are noted 10 times"):
        bench_corpora(text, steps=9)
    with pytest.raises(ConfigurationError, match="letters and spaces; give"):
        prepare_text8(str(text), 10**6)
    with pytest.raises(ConfigurationError, match="fewer than the 1,000,000 words"):
        prepare_one_billion(str(text), 10**6)
