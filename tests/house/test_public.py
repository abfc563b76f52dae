"""The public face: what a fresh Python reaches, and what editors show; `user.py` is what type checkers see."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import softmax_bottleneck as sb
from softmax_bottleneck.core.machine import parse_size
from softmax_bottleneck.core.options import RANK


def test_a_fresh_python_reaches_everything_and_shows_nothing_else() -> None:
    code = "import softmax_bottleneck as sb\nfor name in dir(sb): getattr(sb, name)\nprint(*dir(sb))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(sb.__all__)


@pytest.mark.parametrize(
    "name", ["rank", "kld", "gradient", "compare", "perplexity", "dump", "singular_values", "open"]
)
def test_every_option_is_shown(name: str) -> None:
    shown = inspect.signature(getattr(sb, name)).parameters
    assert {"data", "split", "contexts", "kind", "dtype", "device", "hidden", "tokenizer"} <= set(shown)
    assert not any(each.kind is each.VAR_KEYWORD for each in shown.values())
    assert shown["split"].default == "test"
    assert "contexts: int | None = None" in str(inspect.signature(getattr(sb, name)))


def test_python_and_the_command_have_the_same_defaults() -> None:
    shown = inspect.signature(sb.rank).parameters
    assert {name: shown[name].default for name in RANK} == {name: option.default for name, option in RANK.items()}


@pytest.mark.parametrize("name", ["rank", "kld", "singular_values", "open"])
def test_an_unknown_option_is_a_type_error(name: str) -> None:
    function = getattr(sb, name)
    own = f"{function.__name__}\\(\\) got an unexpected keyword argument 'n_contexts'; it takes source,"
    with pytest.raises(TypeError, match=f"{own} .*data, split, contexts, .*; did you mean 'contexts'\\?"):
        function(np.zeros((3, 2)), n_contexts=3)


@pytest.mark.parametrize(
    ("text", "size"), [("8GiB", 8 << 30), ("1.5 kb", 1500), (".5MiB", 1 << 19), ("7", 7), (9, 9), (None, None)]
)
def test_a_size_with_its_unit(text: str | int | None, size: int | None) -> None:
    assert parse_size(text) == size


def test_objects_show_themselves_on_one_short_line(runs: dict[str, Path], corpus_folder: Path) -> None:
    corpus, run = sb.corpora.load(corpus_folder), sb.checkpoint.load(runs["softmax"])
    source = sb.open(run)
    for shown in (corpus, corpus.vocabulary, run, source, sb.singular_values(source), sb.rank(source), sb.kld(source)):
        text = repr(shown)
        assert text.startswith(f"{type(shown).__name__}(")
        assert "\n" not in text
        assert len(text) < 200 + len(str(run.path))


@pytest.mark.parametrize("name", [5, None, [], {}, 1.5, b"gram"])
def test_a_name_of_another_type_is_answered_with_the_known_names(name: Any) -> None:
    for find in (
        lambda: sb.rank(np.eye(3), kind="matrix", method=name),
        lambda: sb.heads.build(name, hidden_size=3, vocab_size=4),
        lambda: sb.training.presets.find(name),
        lambda: sb.table([], format=name),
    ):
        with pytest.raises(sb.BottleneckError, match=r"unknown|must be a text"):
            find()
