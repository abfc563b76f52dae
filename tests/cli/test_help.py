"""Every help text ends with an example, the example works as printed, and help loads nothing heavy."""

from __future__ import annotations

import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from softmax_bottleneck import bench
from softmax_bottleneck.cli import main

from .conftest import Bottleneck


def _commands(
    command: click.Command = main, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _commands(child, (*words, name))


COMMANDS = list(_commands())
EXAMPLES = [(words, (command.epilog or "").removeprefix("Example: ")) for words, command in COMMANDS]

ONCE = [(words, example) for example, words in {example: words for words, example in EXAMPLES}.items()]
"""Each example, with one of the commands that end with it."""
LINES = {"doctor", "data", "rank", "kld", "compare", "gradient", "argmaxable", "head", "need", "eval"}
"""Commands that print a line for each label; those that print tables fit 80 columns."""


@pytest.mark.parametrize(
    ("words", "command"), COMMANDS, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_help_ends_with_an_example(words: tuple[str, ...], command: click.Command, bottleneck: Bottleneck) -> None:
    shown = bottleneck(*words, "--help")
    assert shown.exit_code == 0
    assert re.sub(r"\s+", " ", shown.output).strip().endswith(command.epilog or "nothing")
    assert (command.epilog or "").startswith("Example: bottleneck")
    assert f" {command.epilog}" in [line.rstrip() for line in shown.output.splitlines()]  # on one line, to be copied


@pytest.mark.parametrize("words", [words for words, command in COMMANDS if len(command.params) > 12], ids=" ".join)
def test_help_shows_common_options_and_help_all_every_option(words: tuple[str, ...], bottleneck: Bottleneck) -> None:
    shown, every = (
        set(re.findall(r"--[a-z][a-z-]*", bottleneck(*words, option).output)) for option in ("--help", "--help-all")
    )
    (command,) = (command for each, command in COMMANDS if each == words)
    names = {each.opts[-1] if each.opts[-1] != "-h" else "--help" for each in command.params if each.opts[0][0] == "-"}
    assert names <= every
    assert 5 <= len(names & shown) <= min(14, len(names) - 1)
    assert {"--help", "--help-all", *re.findall(r"--[a-z-]+", command.epilog or "")} <= shown


def _once_in_this_process(cases: Mapping[str, partial[Callable[[], Mapping[str, Any]]]], **_: Any) -> dict[str, Any]:
    """Run each case of a benchmark once; `in_turn` has tests of its own."""
    measured = {"seconds": 1.0, "runs": [1.0], "memory_bytes": 1}
    return {name: {"case": make.keywords, **measured, **make()()} for name, make in cases.items()}


@pytest.mark.parametrize(("words", "example"), ONCE, ids=[example for _, example in ONCE])
def test_the_example_works_as_printed(
    words: tuple[str, ...], example: str, world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *arguments = shlex.split(example)
    monkeypatch.setattr(import_module("softmax_bottleneck.synthetic.grid"), "cores", lambda: 1)  # no worker processes
    monkeypatch.setattr(import_module("softmax_bottleneck.bench.spectrum"), "PTB", (900, 450))
    monkeypatch.setattr(import_module("softmax_bottleneck.bench.spectrum"), "SHARED", ())  # tests/bench shares rows
    if words == ("synthetic",):
        arguments += ["--cycles", "1", "--rounds", "1"]
    for found in pkgutil.iter_modules(bench.__path__, "softmax_bottleneck.bench."):
        module = import_module(found.name)
        if not found.name.endswith(".in_turn") and hasattr(module, "in_turn"):
            monkeypatch.setattr(module, "in_turn", _once_in_this_process)
    assert program == "bottleneck"
    assert tuple(arguments[: len(words)]) == words or "get_command" in dir(main)
    if words in (("data", "path"), ("data", "rm")):
        bottleneck("data", "get", "ptb", "--from", "ptb.zip")
    done = bottleneck(*arguments)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.strip()
    assert arguments[0] in LINES or max(map(len, done.stdout.splitlines())) <= 80


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from softmax_bottleneck.cli import COMMANDS, main\n"
        "for words in ([], *([name] for name in COMMANDS)):\n"
        "    try: main([*words, '--help'], prog_name='bottleneck')\n"
        "    except SystemExit as stop: assert stop.code == 0\n"
        "print([m for m in ('torch', 'numpy', 'matplotlib', 'scipy', 'zarr', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_commands_print_through_the_functions_that_escape_names() -> None:
    """``click.echo`` and ``print`` stand where nothing is printed but help, styled text and JSON."""
    free = {"__init__.py", "outputs.py", "options.py"}
    for file in (Path(__file__).parents[2] / "cli").glob("*.py"):
        assert file.name in free or not re.search(
            r"(?<![.\w])(click\.echo|print)\(", file.read_text(encoding="utf-8")
        ), file
