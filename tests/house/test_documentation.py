"""Examples of docstrings and pages run; the README and the pages name what they should, and no link is dead."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
from pathlib import Path

import pytest

import softmax_bottleneck
from softmax_bottleneck import heads
from softmax_bottleneck.cli import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_EXAMPLES = [page for page in PAGES if ">>> " in page.read_text(encoding="utf-8")]
NAMES = [
    module.name
    for module in pkgutil.walk_packages(softmax_bottleneck.__path__, "softmax_bottleneck.")
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", NAMES)
def test_docstring_examples(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_examples_of_pages(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert attempted >= 3
    assert failed == 0


def test_there_are_examples_and_the_readme_is_short() -> None:
    finder = doctest.DocTestFinder()
    assert sum(len(test.examples) for name in NAMES for test in finder.find(importlib.import_module(name))) > 20
    assert {"README", "measure", "logging", "trust"} <= {page.stem for page in WITH_EXAMPLES}
    assert len(README.splitlines()) <= 150


def test_the_readme_shows_a_measured_rank() -> None:
    report = json.loads((ROOT / "figures" / "results" / "smollm2" / "rank.json").read_text(encoding="utf-8"))
    lines = README.partition(f"$ bottleneck rank smollm2 --contexts {report['contexts']}\n")[2].splitlines()[:3]
    bound = f"{report['bound']['raw']} = d + 1"
    assert [line.split("  ")[-1] for line in lines] == [
        f"at its bound: the output layer allows rank {bound}",
        f"{report['rank']['value']}, determinate",
        f"{report['rank_centered']['value']}, determinate",
    ]


def test_pages_name_every_command_and_head() -> None:
    architecture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert [command for command in COMMANDS if not re.search(rf"bottleneck {command}\b", README)] == []
    assert [head for head in heads.REGISTRY if f"`{head}`" not in architecture] == []


def test_the_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)\)", README))
    pages = {f"docs/{page.name}" for page in PAGES if page.parent == ROOT / "docs"}
    reference = {"docs/index.md", "docs/commands.md"}
    assert pages - linked <= reference


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
