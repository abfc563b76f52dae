"""Docstring examples run, the README names every command and file it should, and its Python runs."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import softmax_bottleneck
from softmax_bottleneck import heads
from softmax_bottleneck.cli import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = [
    module.name
    for module in pkgutil.walk_packages(softmax_bottleneck.__path__, "softmax_bottleneck.")
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", NAMES)
def test_docstring_examples(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_there_are_docstring_examples_to_run() -> None:
    attempted = sum(
        len(test.examples) for name in NAMES for test in doctest.DocTestFinder().find(importlib.import_module(name))
    )
    assert attempted > 20


def test_readme_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, attempted = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert attempted >= 6
    assert failed == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_shows_every_command(command: str) -> None:
    assert re.search(rf"bottleneck {command}\b", README)


@pytest.mark.parametrize("head", heads.REGISTRY)
def test_readme_names_every_head(head: str) -> None:
    assert f"`{head}`" in README


def test_readme_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert len(targets) > 10
    assert [target for target in targets if not (ROOT / target).exists()] == []
