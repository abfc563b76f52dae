"""Options that several commands share, and how results are printed."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from softmax_bottleneck.errors import ConfigurationError, OutputError

from .streams import echo_text
from .verbosity import is_quiet

if TYPE_CHECKING:
    from softmax_bottleneck.core.progress import Progress

Command = TypeVar("Command", bound=Callable[..., Any])


class Memory(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes with a unit."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read ``8GiB``, ``500 MB`` or a plain number of bytes."""
        from softmax_bottleneck.core.machine import parse_size

        try:
            return parse_size(value) or 0
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


class Counts(click.ParamType):  # type: ignore[type-arg]
    """Two numbers above zero."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Read ``2000,500``."""
        match = re.fullmatch(r"\s*([1-9][0-9]*)\s*,\s*([1-9][0-9]*)\s*", str(value))
        if not match:
            self.fail(f"{value!r} is no pair of numbers above zero; write it as 2000,500", param, ctx)
        return int(match[1]), int(match[2])


class Method(click.ParamType):  # type: ignore[type-arg]
    """``auto``, or the name of a spectrum method; only a name loads the registry."""

    name = "method"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse an unknown name and list the known ones."""
        if value != "auto":
            from softmax_bottleneck.spectrum.registry import find

            try:
                find(value)
            except ConfigurationError as error:
                self.fail(str(error), param, ctx)
        return str(value)


class Listed(click.ParamType):  # type: ignore[type-arg]
    """Values separated by commas."""

    name = "list"

    def __init__(self, kind: Callable[[str], Any], what: str) -> None:
        self.kind, self.what = kind, what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        """Read ``2,10,50``; a comma may stand at the end."""
        parts = str(value).strip().removesuffix(",").split(",")
        try:
            return tuple(self.kind(part.strip()) for part in parts)
        except ValueError:
            self.fail(f"{value!r} is no list of {self.what}", param, ctx)


def listed(name: str, field: str, listed: Listed, **more: Any) -> Callable[[Command], Command]:
    """Return an option whose values are separated by commas or given one by one; ``None`` without any."""

    def joined(ctx: click.Context, param: click.Parameter, given: tuple[tuple[Any, ...], ...]) -> Any:
        return tuple(value for values in given for value in values) or None

    return click.option(name, field, type=listed, multiple=True, callback=joined, **more)


def _name(text: str) -> str:
    if not text:
        raise ValueError
    return text


NAMES = Listed(_name, "names")


class Written(click.Path):
    """A file that a command writes; it is checked before any work is done."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def check(self, path: Path, others: Sequence[Path], sources: Iterable[str | Path], data: str | None) -> None:
        """Refuse a path that cannot be written, is an input, or is another output."""
        check_outputs(path, *others, sources=sources, data=data)


class Folder(Written):
    """A folder or store that a command writes."""

    def check(self, path: Path, others: Sequence[Path], sources: Iterable[str | Path], data: str | None) -> None:
        """Refuse a folder that is an input."""
        keep_inputs(path, sources, data)


class SpectrumFile(Written):
    """A saved spectrum; a device or a pipe may have any name."""

    def check(self, path: Path, others: Sequence[Path], sources: Iterable[str | Path], data: str | None) -> None:
        """Refuse another suffix than .npz too: 'bottleneck spectrum' reads no other."""
        from softmax_bottleneck.core.files import is_special

        super().check(path, others, sources, data)
        if path.suffix != ".npz" and not is_special(path):
            raise OutputError(f"cannot write {path}: a spectrum's file ends in .npz; name it {path.name}.npz")


class Figure(Written):
    """A figure, with a CSV file beside it."""

    HEADER = b"model,part,index,sigma,normalized,percent,resolved,tolerance,bound"
    """First line of that file."""

    def check(self, path: Path, others: Sequence[Path], sources: Iterable[str | Path], data: str | None) -> None:
        """Refuse an unknown image format, and a CSV file of that name which is not of a figure, too."""
        from softmax_bottleneck.results.plotting.style import check_format

        check_format(path)
        numbers = path.with_suffix(".csv")
        check_outputs(path, numbers, *others, sources=sources, data=data)
        if numbers.is_file():
            with numbers.open("rb") as file:
                if file.readline(100).strip() not in (b"", self.HEADER):
                    raise OutputError(
                        f"cannot write {numbers}: another file is there, and the figure's numbers go there; name "
                        "another figure"
                    )


class Page(Written):
    """An HTML page."""

    def check(self, path: Path, others: Sequence[Path], sources: Iterable[str | Path], data: str | None) -> None:
        """Refuse another suffix too."""
        if path.suffix not in (".html", ".htm"):
            raise OutputError(f"a report is one HTML page, and {path} does not end in .html; name it so")
        super().check(path, others, sources, data)


def check_written(given: Mapping[str, Any], *, sources: Iterable[str | Path], data: str | None = None) -> None:
    """Check all outputs of a command before it begins."""
    context = click.get_current_context()
    assert context is not None
    written = [
        (parameter.type, Path(given[parameter.name]))
        for parameter in context.command.params
        if isinstance(parameter.type, Written) and given.get(str(parameter.name)) not in (None, Path("-"))
    ]
    for number, (kind, path) in enumerate(written):
        kind.check(path, [other for _, other in written[number + 1 :]], sources, data)


device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Device to compute on; auto takes a GPU if there is one.",
    panel="How to compute",
)


def _writable(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a file that cannot be written, before the command begins."""
    check_outputs(path)
    return path


json_option = click.option(
    "--json",
    "json_to",
    type=Written(),
    callback=_writable,
    metavar="FILE|-",
    help="Write the result as JSON to FILE; - means standard output.",
    panel="Output",
)
memory_option = click.option(
    "--max-memory",
    type=Memory(),
    help="Memory limit of each decomposition, such as 8GiB.  [default: 8GiB, or the GPU's free memory]",
    panel="How to compute",
)
style_option = click.option(
    "--style",
    type=click.Choice(["screen", "iclr", "icml", "icml-wide", "neurips"]),
    default="screen",
    show_default=True,
    help="Fonts and width of a venue.",
)


def emit(values: Any, text: str, json_to: Path | None, *, as_json: bool = False, styled: bool = False) -> None:
    """Print a result as text or as one JSON object, and write the JSON file if one is named.

    ``styled`` text is printable already, and may hold styles of the terminal.
    """
    as_json = as_json or json_to == Path("-")
    if as_json:
        narrow = not (sys.stdout.encoding or "").lower().startswith("utf")
        text = json.dumps(values, indent=2, ensure_ascii=narrow, allow_nan=False)
    if json_to not in (None, Path("-")):
        from softmax_bottleneck.core.files import write_json

        write_json(json_to, values)
    click.echo(text) if styled and not as_json else echo_text(text)


def check_outputs(*paths: str | Path | None, sources: Iterable[str | Path] = (), data: str | None = None) -> None:
    """Refuse output files that cannot be written, that are inputs, or that two results share."""
    from softmax_bottleneck.core.files import followed, is_special

    files = [Path(path) for path in paths if path is not None and str(path) != "-"]
    for path in files:
        if path.is_dir():
            raise OutputError(f"cannot write {path}: it is a folder; name a file in it")
        if is_special(path):
            continue
        folder = followed(path).parent
        if not folder.is_dir():
            raise OutputError(f"cannot write {path}: there is no folder {folder}; make it, or name another file")
        if not os.access(folder, os.W_OK):
            raise OutputError(f"cannot write {path}: the folder {folder} is not writable; name another file")
        if sum(os.path.realpath(path) == os.path.realpath(other) for other in files) > 1:
            raise OutputError(f"cannot write {path}: another result goes there; name another file")
        keep_inputs(path, sources, data)


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


def progress() -> Progress:
    """Return a progress report on standard error: a silent one after ``--quiet`` and in torchrun's other processes."""
    from softmax_bottleneck.core.progress import SILENT, StreamProgress

    return SILENT if is_quiet() or os.environ.get("RANK", "0") != "0" else StreamProgress(sys.stderr)


def example(line: str) -> str:
    """Return the last line of a help text: an example that works as printed once ``bottleneck demo`` has run."""
    return f"Example: {line}"
