"""Code blocks of the pages: console blocks are run, Python runs, and commands that take hours are parsed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from softmax_bottleneck.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {"extending.md", "states.md"}
"""Pages whose blocks other tests run: tests/house/test_extending.py and tests/hugging_face/test_states_folder.py."""


def _blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


RUN = [page for page in PAGES if page.name not in ELSEWHERE and (_blocks(page, "console"))]
PARSED = [page for page in PAGES if _blocks(page, "shell")]


def test_every_block_has_a_known_language() -> None:
    known = {"console", "shell", "python", "toml", "json", "text"}
    for page in PAGES:
        text = re.sub(r"^```\{.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert {language for language, _ in BLOCK.findall(text)} <= known, page


def test_python_is_run_by_doctest() -> None:
    """tests/house/test_documentation.py runs the examples of every page."""
    for page in PAGES:
        if page.name not in ELSEWHERE:
            assert all(text.startswith(">>>") for text in _blocks(page, "python")), page


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_console_blocks_work_as_printed(page: Path, tmp_path: Path) -> None:
    console = "".join(_blocks(page, "console"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SOFTMAX_BOTTLENECK_CACHE": str(tmp_path / "cache")}
    for command, expected in re.findall(r"^\$ (.+?)\n((?:(?!\$).+\n)*)", console, re.MULTILINE):
        program, *arguments = shlex.split(command)
        assert program == "bottleneck"
        done = subprocess.run(
            [sys.executable, "-m", "softmax_bottleneck", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        lines = [re.escape(line.strip()).replace("…", ".*") for line in expected.splitlines()]
        assert all(re.search(line, done.stdout) for line in lines), f"{command}\n{done.stdout}"


def _parse(words: list[str]) -> None:
    """Let click parse the options of one command line; nothing is opened or run."""
    command: click.Command = main
    names: list[str] = []
    while isinstance(command, click.Group) and words:
        name, *words = words
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"there is no command {' '.join([*names, name])}"
        command, names = found, [*names, name]
    command.make_parser(click.Context(command)).parse_args(words)


@pytest.mark.parametrize("page", PARSED, ids=lambda page: page.stem)
def test_commands_that_take_long_are_written_correctly(page: Path) -> None:
    text = "".join(_blocks(page, "shell")).replace("\\\n", " ")
    lines = re.findall(r"(?:^|-m )(?:\S*/)?(?:softmax_)?bottleneck (.+)$", text, re.MULTILINE)
    for line in lines:
        _parse(shlex.split(line, comments=True))
