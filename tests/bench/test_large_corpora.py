"""Text8 and the 1B Word benchmark from a cut of a text: the loaders' own ids, a loss that falls, what is refused."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from softmax_bottleneck.bench import bench_corpora, large_corpora
from softmax_bottleneck.bench.in_turn import Measured, Work
from softmax_bottleneck.core.files import CACHE_VARIABLE
from softmax_bottleneck.corpora import load
from softmax_bottleneck.errors import ConfigurationError


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Lines of words, each of which follows the one before it in the alphabet or skips one."""
    generator, words = np.random.default_rng(0), [letter * 3 for letter in string.ascii_uppercase]
    rows = [" ".join(words[place % 26] for place in np.cumsum(generator.integers(1, 3, 9))) for _ in range(1500)]
    (tmp_path / "text.txt").write_text("1,\n".join(rows), encoding="utf-8")
    return tmp_path / "text.txt"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each training is done in this process; the help's example does it in one of its own."""

    def here(cases: Mapping[str, Callable[[], Work]], **_: object) -> dict[str, Measured]:
        return {name: Measured([1.0], 0, [make()()]) for name, make in cases.items()}

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(large_corpora, "in_turn", here)


def test_losses_fall(text: Path) -> None:
    found = bench_corpora(text, steps=10)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    for case in found["cases"].values():
        losses = [one["valid_loss"] for one in case["rounds"]]
        assert len(losses) == large_corpora.ROUNDS
        assert losses[-1] < losses[0]
        assert case["ids_bytes"] == 8 * sum(case["tokens"].values())
        assert all(one["memory_bytes"] > 2**20 for one in case["rounds"])
    assert found["cases"]["text8"]["tokens"]["train"] == 32 * (10 * 100 + 1)
    used = text.read_text(encoding="utf-8").lower().splitlines()[: 20 * (10 * 35 + 1) // 10]
    assert found["cases"]["one-billion"]["vocab"] == 2 + len({word for line in used for word in line.split()})


def test_the_cut_is_read_by_the_loaders(text: Path) -> None:
    sizes = {"preset": "", "text": str(text), "steps": 10, "batch_size": 4, "bptt": 50}
    large_corpora._prepare_text8(large_corpora.Case(corpus="text8", **sizes))
    corpus = load("text8")
    letters = "".join(corpus.vocabulary.decode(corpus.split("train")))
    expected = text.read_text(encoding="utf-8").lower().replace("1,\n", " ")
    assert letters == expected[: len(letters)]
    assert len(letters) == 4 * 501
    large_corpora._prepare_one_billion(large_corpora.Case(corpus="one-billion", **sizes))
    corpus = load("one-billion")
    lines = text.read_text(encoding="utf-8").lower().splitlines()
    used = len(corpus.split("train")) // 10  # nine words and the line's end
    first = " ".join(corpus.vocabulary.decode(corpus.split("train")[:10]))
    assert first == f"{lines[0]} <eos>"
    assert used == -(-4 * 501 // 10)
    held_out = len(corpus.split("valid")) + len(corpus.split("test"))
    assert held_out == 10 * max(5, used // 20)


@pytest.mark.parametrize(
    ("steps", "sentence"), [(9, "loss and memory are noted 10 times"), (10_000, "letters and spaces; give")]
)
def test_what_is_refused(steps: int, sentence: str, text: Path) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        bench_corpora(text, steps=steps)


def test_too_few_words(text: Path) -> None:
    case = large_corpora.Case(corpus="one-billion", preset="", text=str(text), steps=10_000, batch_size=20, bptt=35)
    with pytest.raises(ConfigurationError, match="fewer than the 7,000,020 words"):
        large_corpora._prepare_one_billion(case)
