"""docs/extending.md, followed literally: each recipe is installed as a package and seen from the command line."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
SENTENCES = "the cat sat on the mat\na dog ran to the door\nthe dog sat and the cat ran\n" * 12
BLOCK = re.compile(r"(?:^`(?P<file>[\w.]+)`\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)


class Recipe(NamedTuple):
    """What one section of the page tells to write and to run."""

    title: str
    files: dict[str, str]
    entry_point: str
    commands: list[tuple[str, str]]
    """Each command, and what it must print: the lines under it on the page."""


def _recipes() -> list[Recipe]:
    found = []
    for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL):
        blocks = [match.groupdict() for match in BLOCK.finditer(body)]
        console = "".join(block["text"] for block in blocks if block["language"] == "console")
        found.append(
            Recipe(
                title,
                {block["file"]: block["text"] for block in blocks if block["file"]},
                next(block["text"] for block in blocks if block["language"] == "toml"),
                re.findall(r"^\$ (.+?)\n((?:(?!\$).+\n)*)", console, re.MULTILINE),
            )
        )
    return found


RECIPES = _recipes()


def test_all_five_are_there() -> None:
    assert [recipe.title for recipe in RECIPES] == [
        "A head",
        "A kind of SOURCE",
        "A backbone",
        "A corpus",
        "A command",
    ]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_the_recipe_works_as_printed(recipe: Recipe, bottleneck: Any, tmp_path: Path, monkeypatch: Any) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    information = site / "recipe-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: recipe\nVersion: 1.0\n", encoding="utf-8")
    group, name, value = re.fullmatch(  # type: ignore[union-attr]
        r'\[project\.entry-points\."(.+)"\]\n([\w-]+) = "(.+)"\n', recipe.entry_point
    ).groups()
    (information / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n", encoding="utf-8")
    (work / "text").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (work / "text" / f"{split}.txt").write_text(SENTENCES, encoding="utf-8")
    for file, text in recipe.files.items():
        ((site if file.endswith(".py") else work) / file).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(work)
    assert recipe.commands
    for command, expected in recipe.commands:
        program, *arguments = shlex.split(command)
        if program == "python":
            subprocess.run([sys.executable, *arguments], check=True)
            continue
        done = bottleneck(*arguments)
        assert done.exit_code == 0, done.stderr
        assert expected.strip() in done.stdout
