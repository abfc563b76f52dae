"""``bottleneck presets``: the configurations that ``--preset`` names."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import Any

import rich_click as click

from .completion import PRESETS, completing
from .options import example, json_option
from .outputs import emit


@click.command("presets", epilog=example("bottleneck presets 'ptb-*'"))
@click.argument("pattern", default="*", metavar="[NAME|PATTERN]", shell_complete=completing(PRESETS))
@json_option
def command(pattern: str, json_to: Path | None) -> None:
    """List the named configurations with their parameters, expected cost, expected result and its source.

    A PATTERN such as 'ptb-*' selects some of them; a NAME shows one in full, with its command and its configuration.
    'bottleneck train --preset NAME --out RUN' trains one.
    """
    from softmax_bottleneck.training.presets import describe, matching

    values = describe(matching(pattern))
    text = _in_full(values[0]) if pattern == values[0]["name"] else "\n".join(map(_in_short, values))
    emit({"presets": values}, text, json_to)


def _in_short(preset: dict[str, Any]) -> str:
    size, expected = _size(preset["parameters"]), f"expected: {preset['expected']}"
    about = f"{preset['summary']}; {size}; {preset['cost']}"
    return "\n".join([preset["name"], *map(_wrapped, (about, expected))])


def _in_full(preset: dict[str, Any]) -> str:
    from softmax_bottleneck.core.files import json_bytes

    rows = [f"corpus: {preset['corpus']}", f"command: {preset['command']}", "configuration:"]
    configuration = json_bytes(preset["config"]).decode().rstrip()
    return "\n".join([_in_short(preset), *map(_wrapped, rows), textwrap.indent(configuration, "    ")])


def _wrapped(text: str) -> str:
    """Return text in lines that fit the terminal, indented under the name of a preset."""
    width = min(100, shutil.get_terminal_size().columns)
    return textwrap.fill(text, width, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False)


def _size(parameters: int | None) -> str:
    return "size depends on the corpus" if parameters is None else f"{parameters / 1e6:.2f}M parameters"
