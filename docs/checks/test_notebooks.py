"""The notebooks: text and code are those of their .py, nothing is stored of a run, and only public names are used."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import jupytext
import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]


def _cells(path: Path) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]


def test_there_are_six() -> None:
    assert [name[:2] for name in NAMES] == ["01", "02", "03", "04", "05", "06"]
    assert sorted(FOLDER.glob("*.py")) == [path.with_suffix(".py") for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_it_is_paired_with_its_script(path: Path) -> None:
    assert _cells(path) == _cells(path.with_suffix(".py")), "run: jupytext --sync notebooks/*.py"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_no_output_is_kept(path: Path) -> None:
    for cell in jupytext.read(path).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_it_opens_with_what_the_reader_learns(path: Path) -> None:
    (kind, text), *_ = _cells(path)
    assert kind == "markdown"
    assert re.match(r"# .+\n\nYou will learn", text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_only_public_names_are_used(path: Path) -> None:
    code = "\n".join(source for kind, source in _cells(path) if kind == "code")
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            assert all(each.asname == "sb" for each in node.names if each.name.startswith("softmax_bottleneck"))
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("softmax_bottleneck")
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_") or node.attr == "__init__"
