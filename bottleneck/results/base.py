"""The base class of all results, with output as JSON, as a table row, and as text."""

from __future__ import annotations

import re
import textwrap
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from html import escape
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, get_args, get_origin, get_type_hints, overload

import numpy as np

from ..core.files import write_json
from ..core.json_file import check_schema
from ..core.version import __version__
from ..errors import ConfigurationError, OutputError, Parameter, Sentence
from .quantity import ANSWER, DETAIL, FRAME, TABLE, Quantity, cell, doubts_of, plain, put
from .tables import TableText, csv_text, html_table, latex, markdown, terminal

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Drawings = list[Callable[["Axes"], None]]
"""What draws each panel of a picture."""
FORMATS = ("markdown", "latex", "csv")
"""Formats of a table as text."""

_SUFFIX = re.compile(r"\.(npz|npy|zarr|safetensors)$")
UNSAVED: Mapping[str, Any] = {"key": ""}
"""Metadata of a field that `Result.to_dict` leaves out, such as an array that stands beside the result; another
``"key"`` is the field's name in JSON."""
ALL_NUMBERS = ("all numbers", Sentence(Parameter(".details()", flag="details")))
"""Last line of an answer that leaves quantities out."""
WIDTH = 80
"""Largest number of columns of a line in the ``repr`` of several results."""
FIRST = 3
"""Lines of an answer in the ``repr`` of a result."""
KINDS: dict[str, type[Result]] = {}
"""Classes of results by the ``"kind"`` in their JSON."""


class Result(ABC):
    """A measurement: fields, and a list of quantities, of which every view is made.

    It prints as aligned lines and displays as a table in a notebook.
    """

    kind: ClassVar[str]
    """What a saved result is, in JSON under ``"kind"``."""

    def __init_subclass__(cls, kind: str = "", **more: Any) -> None:
        """Register the class as that of saved results of a kind."""
        super().__init_subclass__(**more)
        if kind:
            cls.kind = kind
            KINDS[kind] = cls
        if not hasattr(cls, "verdict") and "verdict" not in cls.__annotations__:
            cls.verdict = property(  # type: ignore[attr-defined]
                lambda self: next((str(each.value) for each in self.quantities() if each.label == "verdict"), ""),
                doc="The sentence that answers the question.",
            )

    @abstractmethod
    def quantities(self) -> Iterator[Quantity]:
        """Yield what people see, and what is computed of the fields, in the order of the lines."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON: the kind, the fields, the computed quantities, and the version."""
        return {"kind": self.kind, **self.plain(), "version": __version__}

    def plain(self) -> dict[str, Any]:
        """Return what `to_dict` holds of a result within another."""
        values = {key: plain(getattr(self, name)) for name, key in self._saved()}
        for each in self.quantities():
            if each.key:
                put(values, each.key, each.value)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the result that `to_dict` returned; `ValueError` for other values, with the key."""
        hints, known = get_type_hints(cls, include_extras=True), {}
        for name, key in cls._saved():
            if key in values:
                try:
                    known[name] = _read(values[key], hints[name])
                except (TypeError, ValueError) as fault:
                    raise ValueError(f"{key}: {fault}") from None
        try:
            return cls(**known)
        except TypeError as fault:  # a field is missing
            raise ValueError(str(fault).partition(" ")[2]) from None

    @classmethod
    def _saved(cls) -> list[tuple[str, str]]:
        """Return the names of the fields that are saved, each with its key."""
        known: Any = cls
        keys = [(field.name, field.metadata.get("key", field.name)) for field in fields(known)]
        return [(name, key) for name, key in keys if key]

    def save(self, path: str | Path) -> None:
        """Write the result as JSON, for `load`; the path ends in .json."""
        _write(path, self)

    def panels(self) -> Drawings:
        """Return what draws each panel of the picture; `OutputError` for a result that has nothing to draw."""
        raise OutputError(f"a result of the kind {self.kind!r} has nothing to draw: print it, or save it as JSON")

    def plot(self, ax: Axes | str | Path | None = None, *, style: str = "screen") -> Axes:
        """Draw the panels that `panels` describes.

        Args:
            ax: a file to write, or axes for the first panel alone; by default all are drawn into a new figure.
            style: one of ``plotting.STYLES``, for a new figure.

        Raises:
            OutputError: for a result that has nothing to draw.
        """
        return _plot({"": self}, ax, style)

    @property
    def name(self) -> str:
        """Name of what was measured: its label if it has one, otherwise its path; empty if neither is known."""
        source = getattr(self, "source", None)
        return str(source.get("label") or source.get("path", "")) if isinstance(source, Mapping) else ""

    @property
    def note(self) -> str:
        """What is doubtful of the source that was measured, or an empty string."""
        source = getattr(self, "source", None)
        return doubts_of(source) if isinstance(source, Mapping) else ""

    def named(self, label: str) -> Self:
        """Return this measurement of a source with another name for tables and figures."""
        known: Any = self
        return replace(known, source={**known.source, "label": label})

    def rows(self, *, details: bool = False) -> list[tuple[str, str]]:
        """Return the answer, or every quantity that people see, as label and text."""
        quantities = [each for each in self.quantities() if each.shown & (ANSWER | DETAIL)]
        rows = [(each.label, str(each)) for each in quantities if details or each.shown & ANSWER]
        is_whole = len(rows) == len(quantities)
        is_said = not self.note or any(self.note in text for _, text in rows)
        return [*rows, *(() if is_said else [("note", self.note)]), *(() if is_whole else (ALL_NUMBERS,))]

    def details(self) -> str:
        """Return every quantity that people see as aligned lines."""
        return aligned(self.rows(details=True))

    def columns(self) -> dict[str, str]:
        """Return the cells of a table for people, by heading."""
        return {each.label: str(each) for each in self.quantities() if each.shown & TABLE and each.value is not None}

    def numbers(self, *, full: bool = False) -> dict[str, Any]:
        """Return the values of a data frame: those of a table, or everything with nested keys joined by dots."""
        if full:
            return flat(self.to_dict())
        return dict(chain.from_iterable(each.columns() for each in self.quantities() if each.shown & (TABLE | FRAME)))

    def to_frame(self, *, full: bool = False) -> pd.DataFrame:
        """Return a table of one row with the result's name as its index; see `frame` for several results.

        Args:
            full: whether to return every value of `to_dict`, with nested keys joined by dots, instead of `numbers`.
        """
        return frame([self], full=full)

    def to_latex(self, *, columns: Sequence[str] | None = None, caption: str = "", label: str = "") -> str:
        """Return a LaTeX table of one row for the package booktabs; see `table` for its columns and several results."""
        return latex(*cells([self], columns), caption=caption, label=label)

    def __str__(self) -> str:
        """Return the answer as aligned lines."""
        return aligned(self.rows())

    def __repr__(self) -> str:
        """Return the class, the name and the first lines of the answer, on one line."""
        rows = [row for row in self.rows()[:FIRST] if row != ALL_NUMBERS]
        first = [text if label == "verdict" else f"{label} {text}" for label, text in rows]
        return f"{type(self).__name__}({repr(self.name) + ': ' if self.name else ''}{'; '.join(first)})"

    def _repr_html_(self) -> str:
        return html_table(self.rows())


def _read(value: Any, hint: Any) -> Any:
    """Return a plain value as what a field holds."""
    if get_origin(hint) is np.ndarray:
        return np.array(value, dtype=get_args(get_args(hint)[1])[0])
    for each in (hint, *get_args(hint)):  # a result, or one that may be missing
        if isinstance(each, type) and issubclass(each, Result):
            return value if value is None else each.from_dict(value)
    return check_schema(value, hint)


R = TypeVar("R", bound=Result)


class Results(Sequence[R]):
    """Results of several sources: a sequence, also by name, and a table of all."""

    def __init__(self, results: Iterable[R]) -> None:
        self._results = tuple(results)

    def __len__(self) -> int:
        return len(self._results)

    @overload
    def __getitem__(self, place: int | str) -> R: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | str | slice) -> R | Self:
        """Return a result by its place or its name, or several by their places."""
        if isinstance(place, str):
            return {result.name: result for result in self._results}[place]
        return type(self)(self._results[place]) if isinstance(place, slice) else self._results[place]

    @property
    def verdict(self) -> str:
        """What the results say together, or the verdict of a single one; an empty string where there is none."""
        return str(getattr(self[0], "verdict", "")) if len(self) == 1 else ""

    @property
    def footnotes(self) -> tuple[str, ...]:
        """The notes of all results, each once, with the names that it is about unless it is about all."""
        of: dict[str, list[str]] = {}
        for each in self:
            for note in filter(None, (*getattr(each, "notes", ()), each.note)):
                of.setdefault(note, []).append(each.name)
        is_named = {note: len(on) == len(self) or note.startswith(f"{on[0]}: ") for note, on in of.items()}
        return tuple(note if is_named[note] else f"{', '.join(on)}: {note}" for note, on in of.items())

    def ordered(self) -> Self:
        """Return the results in the order of a table for people."""
        return self

    def table(self, *, columns: Sequence[str] | None = None, format: str = "markdown") -> TableText:  # noqa: A002
        """Return a row for each result; see `results.table`."""
        return table(self, columns=columns, format=format)

    def to_markdown(self, *, columns: Sequence[str] | None = None) -> str:
        """Return the table as Markdown."""
        return str(self.table(columns=columns))

    def to_latex(self, *, columns: Sequence[str] | None = None, caption: str = "", label: str = "") -> str:
        """Return the table for LaTeX's package booktabs."""
        shown = self.table(columns=columns)
        return latex(shown.header, shown.rows, caption=caption, label=label)

    def to_frame(self, *, full: bool = False) -> pd.DataFrame:
        """Return a row of numbers for each result; see `results.frame`."""
        return frame(self, full=full)

    def plot(self, ax: Axes | str | Path | None = None, *, style: str = "screen") -> Axes:
        """Draw the panels of all results, with their names; see `Result.plot`."""
        return _plot({each.name: each for each in self}, ax, style)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, as the command writes them for several sources."""
        verdict = {"verdict": self.verdict} if self.verdict else {}
        return {"kind": "results", "results": [result.to_dict() for result in self], **verdict}

    def save(self, path: str | Path) -> None:
        """Write all results as JSON, for `load`; the path ends in .json."""
        _write(path, self)

    def details(self) -> str:
        """Return every quantity of each result as aligned lines, below its name."""
        return "\n\n".join(f"{each.name}\n{each.details()}" for each in self)

    def __repr__(self) -> str:
        """Return the verdict, the table and the notes, in lines of at most 80 columns; a single result as its lines."""
        if len(self) == 1:
            return str(self[0])
        verdict, *notes = (textwrap.fill(text, WIDTH) for text in (self.verdict, *self.footnotes))
        return "\n\n".join(filter(None, [verdict, terminal(*cells(self.ordered()), width=WIDTH), *notes]))

    def _repr_html_(self) -> str:
        if len(self) == 1:
            return self[0]._repr_html_()
        verdict, *notes = (f"<p>{escape(text)}</p>" if text else "" for text in (self.verdict, *self.footnotes))
        return "".join([verdict, self.ordered().table()._repr_html_(), *notes])


def _write(path: str | Path, results: Result | Results[Any]) -> None:
    if Path(path).suffix != ".json":
        raise OutputError(
            f"cannot write {path}: a result is saved as JSON, in a file that ends in .json; .plot('FILE.png') draws"
        )
    write_json(Path(path), results.to_dict())


def _plot(results: Mapping[str, Result], ax: Axes | str | Path | None, style: str) -> Axes:
    panels = [(draw, name) for name, result in results.items() for draw in result.panels()]
    from .plotting.layout import Panel, show  # matplotlib is loaded only where there is something to draw

    return show([Panel(*each) for each in panels], ax, style=style)


def aligned(rows: Sequence[tuple[str, str]]) -> str:
    """Return labels and texts as lines."""
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:>{width}}  {text}" for label, text in rows)


def frame(results: Iterable[Result], *, full: bool = False, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return several results as one table, with one row for each and their names as its index.

    Args:
        results: results of one kind, or of several: a column that a result does not have is empty in its row.
        full: whether to return every value instead of the most used ones.
        columns: names of columns to choose, see `table`.
    """
    import pandas as pd

    chosen = list(results)
    rows = [{**(each.columns() if columns else {}), **each.numbers(full=full)} for each in chosen]
    index = pd.Index([each.name for each in chosen], name="name")
    return pd.DataFrame(rows, index=index, columns=None if columns is None else list(columns))


def table(
    results: Sequence[Result],
    *,
    columns: Sequence[str] | None = None,
    format: str = "markdown",  # noqa: A002 (the word of pandas and click)
) -> TableText:
    """Return several results as a table in plain text, which a notebook shows as a table.

    Args:
        results: in CSV one row for each; in Markdown and LaTeX, results of several kinds that have one name share one.
        columns: names of columns, of those shown by default or of `Result.numbers`.
        format: ``"markdown"``, ``"latex"`` (for the package booktabs) or ``"csv"`` (by default all columns of
            `Result.numbers`, numbers in full precision).

    Raises:
        ConfigurationError: for another format, or a column that no result has.
    """
    if format not in FORMATS:
        raise ConfigurationError(f"unknown format {format!r}; a table is one of {', '.join(FORMATS)}")
    header, rows = cells(results, columns)
    write = {"markdown": markdown, "latex": latex}.get(format)
    text = write(header, rows) if write else csv_text(frame(results, columns=columns), index=True)
    return TableText(text.rstrip("\n"), header, rows)


def cells(results: Sequence[Result], columns: Sequence[str] | None = None) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table for people, as text, without columns that are empty in all rows."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    earlier: Counter[tuple[type, str]] = Counter()  # results of one kind and one name have a row each
    for result in results:
        kind = (type(result), result.name)
        values = result.columns() if columns is None else {**result.numbers(), **result.columns()}
        rows.setdefault((result.name, earlier[kind]), {}).update(values)
        earlier[kind] += 1
    present = list(dict.fromkeys(key for row in sorted(rows.values(), key=len, reverse=True) for key in row))
    if missing := [key for key in columns or () if key not in present]:
        raise ConfigurationError(f"no result has a column {missing[0]!r}; the columns are {', '.join(present)}")
    chosen = [key for key in columns or present if any(row.get(key) is not None for row in rows.values())]
    return ["model", *chosen], [[name, *(cell(row.get(key)) for key in chosen)] for (name, _), row in rows.items()]


def short_names(paths: Iterable[str]) -> list[str]:
    """Return the last parts of paths that tell them apart, without the suffix of a matrix, a store or a spectrum.

    Example:
        >>> short_names(["demo/runs/mos", "old/softmax.npz", "new/softmax.npz", "new/softmax.npz"])
        ['mos', 'old/softmax', 'new/softmax', 'new/softmax']
    """
    parts = [tuple(_SUFFIX.sub("", path.rstrip("/")).split("/")) for path in paths]
    ends = Counter(words[-size:] for words in set(parts) for size in range(1, len(words) + 1))
    shown = []
    for words in parts:
        size = next((n for n in range(1, len(words) + 1) if ends[words[-n:]] == 1), len(words))
        shown.append("/".join(words[-size:]))
    return shown


def by_numbers(name: str) -> str:
    """Return a key that sorts names by the numbers in them.

    Example:
        >>> sorted(["k1", "k10", "k3"], key=by_numbers)
        ['k1', 'k3', 'k10']
    """
    return re.sub(r"\d+", lambda digits: digits[0].zfill(8), name)


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested mappings as one, with keys joined by dots."""
    joined: dict[str, Any] = {}
    for key, value in values.items():
        joined |= flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return joined
