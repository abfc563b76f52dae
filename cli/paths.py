"""The files that a command reads and writes, as the types of its options: no output takes the place of an input."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import rich_click as click

from softmax_bottleneck.errors import OutputError

STANDARD = Path("-")
"""Standard output."""
BEFORE_A_PATH = re.compile(r"^[^=/]+=|[a-z][a-z0-9+.]*://|::")
"""What may stand before the path in a name: ``LABEL=`` and protocols of fsspec."""


class Input(click.Path):
    """A file or folder that a command reads, or a name with one in it, such as ``LABEL=FILE.npz:ARRAY``."""

    def __init__(self, kind: type = str) -> None:
        super().__init__(path_type=kind)

    def files(self, name: str | Path) -> Iterator[Path]:
        """Yield what is read: a file, a folder with everything in it, a pretrained model, the corpus of a run."""
        from softmax_bottleneck.core.json_file import json_if_any
        from softmax_bottleneck.hugging_face.pretrained import PRETRAINED

        for path in paths_in(str(name)):
            yield path
            config = json_if_any(path / "config.json")
            corpus = config.get("corpus") if isinstance(config, dict) else None
            yield from texts(str(corpus.get("name"))) if isinstance(corpus, dict) else ()
        yield from (model.place for model in PRETRAINED.values() if str(name).endswith(model.name))
        if counted := re.search(r"\bkn[1-9]:(.+)", str(name)):
            yield from texts(counted[1])


class Text(Input):
    """A text or corpus that a command reads."""

    def files(self, name: str | Path) -> Iterator[Path]:
        """Yield the text, or the texts of the corpus, whose folder may hold anything else."""
        return texts(str(name))


class ResultFiles(Input):
    """A folder of saved results that a command reads."""

    def files(self, name: str | Path) -> Iterator[Path]:
        """Yield the results."""
        return (file for file in Path(name).rglob("*") if file.suffix in (".json", ".npz"))


def texts(name: str) -> Iterator[Path]:
    """Yield the files of a corpus by its name or folder, or a text, also of FILE.jsonl:FIELD."""
    from softmax_bottleneck import corpora
    from softmax_bottleneck.errors import CorpusError

    for path in paths_in(name):
        yield from [path / f"{split}.txt" for split in corpora.SPLITS] if path.is_dir() else [path]
    with suppress(CorpusError):  # not the name of one that is here
        yield corpora.path(name)


def paths_in(name: str) -> set[Path]:
    """Return what exists of the paths that a name may hold, with or without a label, a protocol or an array's name."""
    from softmax_bottleneck.core.files import exists

    source, dashes, options = name.partition(" --")
    words = [name, source]
    with suppress(ValueError):  # an unclosed quote, which the command refuses
        words += shlex.split(dashes + options)
    parts = [part for word in words for part in (word, *BEFORE_A_PATH.split(word))]
    parts += [part.rpartition(":")[0] for part in parts]
    return {Path(part) for part in parts if part and exists(Path(part))}


def holds_result(path: Path) -> bool:
    """Return whether a file holds one of our results as JSON."""
    from softmax_bottleneck.core.json_file import json_if_any
    from softmax_bottleneck.measure.loading import is_result

    return is_result(json_if_any(path))


def holds_spectra(path: Path) -> bool:
    """Return whether a file holds saved spectra."""
    from softmax_bottleneck.spectrum import holds_spectra

    return holds_spectra(path)


def is_drawn(path: Path) -> bool:
    """Return whether a page or a figure names this package as its maker."""
    from softmax_bottleneck.core.files import is_drawn

    return is_drawn(path)


def holds_figures_numbers(path: Path) -> bool:
    """Return whether a file holds the numbers of a figure."""
    with path.open("rb") as file:
        return file.readline(100).strip() == b"model,part,index,sigma,normalized,percent,resolved,tolerance,bound"


class Output(click.Path):
    """A file that a command writes, checked before any work is done.

    Errors say ``what`` it holds. It replaces a file that ``is_own`` tells to be of its kind, by default any.
    """

    def __init__(self, what: str = "", *suffixes: str, is_own: Callable[[Path], bool] = lambda _: True) -> None:
        super().__init__(path_type=Path)
        self.what, self.suffixes, self.is_own = what, suffixes, is_own

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

    def keep_others(self, path: Path) -> None:
        """Refuse to replace a file of another kind."""
        if path.is_file() and path.stat().st_size and not self.is_own(path):
            raise OutputError(f"cannot write {path}: another file is there, not {self.what}; name another file")


class Folder(Output):
    """A folder or store that a command writes, as a whole or only these parts, and makes if it does not exist.

    A part with a ``*`` stands for the files of such names that are there.
    """

    def __init__(self, *parts: str) -> None:
        super().__init__()
        self.parts = parts or (".",)

    def files(self, path: Path) -> list[Path]:
        """Return what is written."""
        named = [path / part if path.is_dir() or "*" not in part else path for part in self.parts]
        return [file for each in named for file in (each.parent.glob(each.name) if "*" in each.name else [each])]

    def check(self, path: Path) -> None:
        """Accept any folder."""


class Figure(Output):
    """A figure, with a CSV file beside it."""

    def files(self, path: Path) -> list[Path]:
        """Return the figure and its CSV file."""
        return [path, path.with_suffix(".csv")]

    def check(self, path: Path) -> None:
        """Check the name of the CSV file as well."""
        super().check(path)
        Output().check(path.with_suffix(".csv"))

    def keep_others(self, path: Path) -> None:
        """Refuse to replace a file that is not a figure of ours, or a CSV file that does not belong to one."""
        super().keep_others(path)
        Output("a figure's numbers, which go there", is_own=holds_figures_numbers).keep_others(path.with_suffix(".csv"))


def check_outputs(context: click.Context) -> None:
    """Refuse outputs of a command that are inputs, that two results share, or that hold something else."""
    from softmax_bottleneck.core.files import is_special

    given = [
        (parameter.type, value)
        for parameter in context.command.params
        for value in _values(context.params.get(str(parameter.name)))
    ]
    written = [(kind, value) for kind, value in given if isinstance(kind, Output) and value != STANDARD]
    outputs = [file for kind, value in written for file in kind.files(value) if not is_special(file)]
    inputs = [file for kind, value in given if outputs and isinstance(kind, Input) for file in kind.files(value)]
    for number, output in enumerate(outputs):
        if any(_is_part(output, other) for other in outputs[:number] + outputs[number + 1 :]):
            raise OutputError(f"cannot write {output}: another result goes there; name another file")
        if place := next((place for place in inputs if _is_part(output, place)), None):
            raise OutputError(f"cannot write {output}: it is part of what is read, {place}; name another place")
    for kind, value in written:
        kind.keep_others(value)


def _values(given: Any) -> Iterable[Any]:
    return given if isinstance(given, tuple) else () if given is None else (given,)


def _is_part(output: Path, place: Path) -> bool:
    """Return whether an output is a file or folder, lies in it, or is a file of it by another name, such as a link."""
    if Path(os.path.realpath(output)).is_relative_to(os.path.realpath(place)):
        return True
    return output.is_file() and any(each.samefile(output) for each in _files_in(place))


def _files_in(place: Path) -> Iterator[Path]:
    """Yield a file, or the files in a folder, through links to folders as well, each once."""
    if place.is_file():
        yield place
    entered = set()
    for folder, folders, names in os.walk(place, followlinks=True):
        if (real := os.path.realpath(folder)) in entered:
            folders.clear()
            continue
        entered.add(real)
        yield from (path for path in (Path(folder, name) for name in names) if path.is_file())
