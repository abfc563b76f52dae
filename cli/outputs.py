"""How results are printed, without characters that steer a terminal, and written; and checks of a command's files."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from softmax_bottleneck.core.interruption import EXIT_CODES
from softmax_bottleneck.core.printable import printable
from softmax_bottleneck.errors import OutputError

if TYPE_CHECKING:
    from softmax_bottleneck.results.base import Result

STANDARD = Path("-")
"""Standard output."""
STANDS_OUT = ("rank", "verdict")
"""Labels of the lines that a terminal shows in bold."""
NARROWEST = 40
"""Least width in columns to which lines are wrapped."""


class Output(click.Path):
    """A file that a command writes, checked before any work is done; errors say ``what`` it holds."""

    def __init__(self, what: str = "", *suffixes: str) -> None:
        super().__init__(path_type=Path)
        self.what, self.suffixes = what, suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a file that cannot be written."""
        path: Any = super().convert(value, param, ctx)
        if path != STANDARD:
            self.check(path)
        return path

    def files(self, path: Path) -> list[Path]:
        """Return all files that are written."""
        return [path]

    def check(self, path: Path) -> None:
        """Refuse a path that cannot be written, or that has another suffix; a pipe or a device may have any name."""
        from softmax_bottleneck.core.files import followed, is_special

        if path.is_dir():
            raise OutputError(f"cannot write {path}: it is a folder; name a file in it")
        if is_special(path):
            return
        folder = followed(path).parent
        if not folder.is_dir():
            raise OutputError(f"cannot write {path}: the folder {folder} does not exist; make it, or name another file")
        if not os.access(folder, os.W_OK):
            raise OutputError(f"cannot write {path}: the folder {folder} is not writable; name another file")
        if self.suffixes and path.suffix not in self.suffixes:
            raise OutputError(
                f"cannot write {path}: {self.what} ends in {', '.join(self.suffixes)}; name it {path.name}"
                f"{self.suffixes[0]}"
            )


class Folder(Output):
    """A folder or store that a command writes, and makes if it does not exist."""

    def check(self, path: Path) -> None:
        """Accept any folder."""


class Figure(Output):
    """A figure, with a CSV file beside it."""

    HEADER = b"model,part,index,sigma,normalized,percent,resolved,tolerance,bound"
    """First line of that file."""

    def files(self, path: Path) -> list[Path]:
        """Return the figure and its CSV file."""
        return [path, path.with_suffix(".csv")]

    def check(self, path: Path) -> None:
        """Refuse also a CSV file of that name which does not belong to a figure."""
        super().check(path)
        numbers = path.with_suffix(".csv")
        Output().check(numbers)
        if numbers.is_file():
            with numbers.open("rb") as file:
                if file.readline(100).strip() not in (b"", self.HEADER):
                    raise OutputError(
                        f"cannot write {numbers}: another file is there, and the figure's numbers go there; name "
                        "another figure"
                    )


def check_outputs(given: Mapping[str, Any], *, sources: Iterable[str | Path], data: str | None = None) -> None:
    """Refuse outputs of the running command that are inputs, or that two results share."""
    from softmax_bottleneck.core.files import is_special

    context = click.get_current_context()
    assert context is not None
    files = [
        file
        for parameter in context.command.params
        if isinstance(parameter.type, Output) and given.get(str(parameter.name)) not in (None, STANDARD)
        for file in parameter.type.files(given[str(parameter.name)])
        if not is_special(file)
    ]
    for file in files:
        if sum(os.path.realpath(file) == os.path.realpath(other) for other in files) > 1:
            raise OutputError(f"cannot write {file}: another result goes there; name another file")
        keep_inputs(file, sources, data)


def keep_inputs(output: Path, sources: Iterable[str | Path], data: str | None = None) -> None:
    """Refuse an output that is a SOURCE, lies inside one, or is a text that a model is evaluated on."""
    from softmax_bottleneck.corpora import SPLITS

    places = [*map(_file_of, sources)]
    texts = [Path(name) for name in (data, *map(_corpus_of, places)) if name is not None]
    read = [*places, *(file for place in places if place.is_dir() for file in place.iterdir())]
    read += [*texts, *(text / f"{split}.txt" for text in texts for split in SPLITS)]
    above = [place for place in places if Path(os.path.realpath(output)).is_relative_to(os.path.realpath(place))]
    same = [file for file in read if output.exists() and file.exists() and file.samefile(output)]
    if inputs := above + same:
        raise OutputError(f"cannot write {output}: it is part of what is read, {inputs[0]}; name another place")


def _file_of(source: str | Path) -> Path:
    """Return the file or folder of a SOURCE, without the name of an array in it, FILE.npz:NAME."""
    return Path(source) if Path(source).exists() else Path(re.sub(r"(\.\w+):[^:]+$", r"\1", str(source)))


def _corpus_of(place: Path) -> str | None:
    """Return the name of a run's corpus."""
    from softmax_bottleneck.language_models.checkpoint import is_run, read_config

    corpus = read_config(place).get("corpus") if is_run(place) else None
    return corpus.get("name") if isinstance(corpus, dict) else None


def show(result: Result, json_to: Path | None = None) -> None:
    """Print one measurement as lines; see `show_all`."""
    show_all([result], "lines", json_to)


def show_all(results: Sequence[Result], as_format: str | None, json_to: Path | None) -> None:
    """Print measurements, at least one, and write them as JSON if that is requested.

    The JSON of one result is one object; several are a list under ``"results"``.
    """
    values = results[0].to_dict() if len(results) == 1 else {"results": [result.to_dict() for result in results]}
    emit(values, _text(results, as_format), json_to, as_json=as_format == "json", styled=True)


def _text(results: Sequence[Result], as_format: str | None) -> str:
    from softmax_bottleneck.results.base import cells, table

    if as_format in ("markdown", "latex", "csv"):
        return printable(table(results, format=as_format), lines=True)
    if as_format == "table" or (as_format is None and len(results) > 1):
        return printable(terminal_table(*cells(results)), lines=True)
    return "\n\n".join(aligned(each.rows(details=as_format == "details")) for each in results)


def aligned(rows: Sequence[tuple[str, str]]) -> str:
    """Return labels and texts as lines, wrapped with a hanging indent to the terminal, or to 80 columns elsewhere."""
    width = _width()
    rows = [(label, printable(text)) for label, text in rows]
    label_width = max(len(label) for label, _ in rows)
    lines = []
    for label, text in rows:
        hanging = textwrap.fill(
            text,
            max(width, NARROWEST),
            initial_indent=f"{label:>{label_width}}  ",
            subsequent_indent=" " * (label_width + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines.append(click.style(hanging, bold=True) if sys.stdout.isatty() and label in STANDS_OUT else hanging)
    return "\n".join(lines)


def terminal_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table that is at most as wide as the terminal, or 80 columns where it is not read on one."""
    from softmax_bottleneck.results.tables import terminal

    return terminal(header, rows, width=_width())


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def emit(values: Any, text: str, json_to: Path | None, *, as_json: bool = False, styled: bool = False) -> None:
    """Print a result as text or as one JSON object, and write the JSON file if one is named.

    ``styled`` text is printable already, and may hold styles of the terminal.
    """
    as_json = as_json or json_to == STANDARD
    if as_json:
        narrow = not (sys.stdout.encoding or "").lower().startswith("utf")
        text = json.dumps(values, indent=2, ensure_ascii=narrow, allow_nan=False)
    if json_to not in (None, STANDARD):
        from softmax_bottleneck.core.files import write_json

        write_json(json_to, values)
    click.echo(text) if styled and not as_json else echo_text(text)


def echo(*lines: object, err: bool = False) -> None:
    """Print lines without characters that steer a terminal; a line may hold the name of any file."""
    for line in lines:
        click.echo(printable(str(line)), err=err)


def echo_text(text: str, *, err: bool = False) -> None:
    """Print a text of several lines without characters that steer a terminal."""
    click.echo(printable(text, lines=True), err=err)


def flush_output() -> None:
    """Write out what standard output still holds; `OSError` when it cannot be written, and then it is dropped."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):  # Python flushes it once more at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def say_interrupted(number: int, notes: Sequence[str] = ()) -> int:
    """Print the sentence for an interruption, in which ``notes`` say what is kept; return the exit code."""
    echo("; ".join(["interrupted", *notes]), err=True)
    return EXIT_CODES[number]
