"""The base class of all results, with output as JSON, as a table row, and as text."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from ..core.version import __version__
from ..errors import ConfigurationError
from .tables import TableText, csv_text, html_table, latex, markdown

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("markdown", "latex", "csv")
"""Formats of a table as text."""

_NESTED = (Mapping, list, tuple)
_SUFFIX = re.compile(r"\.(npz|npy|zarr|safetensors)$")


class Result(ABC):
    """A measurement. It prints as aligned lines and displays as a table in a notebook."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        known: Any = self
        return {**asdict(known), "version": __version__}

    @abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """Return the result as rows of label and text."""

    @property
    def name(self) -> str:
        """Name of what was measured: its label if it has one, otherwise its path; empty if neither is known."""
        source = getattr(self, "source", None)
        return str(source.get("label") or source.get("path", "")) if isinstance(source, Mapping) else ""

    def named(self, label: str) -> Self:
        """Return this measurement of a source with another name for tables and figures."""
        known: Any = self
        return replace(known, source={**known.source, "label": label})

    def summary(self) -> dict[str, Any]:
        """Return the values that a table shows, by column: numbers, texts and ``None``."""
        values = self.to_dict().items()
        return {key: value for key, value in values if key != "version" and not isinstance(value, _NESTED)}

    def to_frame(self, *, full: bool = False) -> pd.DataFrame:
        """Return a table of one row with the result's name as its index; see `frame` for several results.

        Args:
            full: whether to return every value of `to_dict`, with nested keys joined by dots, instead of `summary`.
        """
        return frame([self], full=full)

    def columns(self) -> dict[str, Any]:
        """Return the values of a table for people, by column."""
        return {key.replace("_", " "): value for key, value in self.summary().items()}

    def to_latex(self, *, columns: Sequence[str] | None = None, caption: str = "", label: str = "") -> str:
        """Return a LaTeX table of one row for the package booktabs; see `table` for its columns and several results."""
        return latex(*cells([self], columns), caption=caption, label=label)

    def all_rows(self) -> list[tuple[str, str]]:
        """Return `rows`, and those that only ``--details`` shows."""
        return self.rows()

    def __str__(self) -> str:
        """Return the result as aligned lines."""
        return aligned(self.rows())

    def __repr__(self) -> str:
        """Return the class, the name and the first values of the summary, on one line."""
        shown = [f"{key}={_cell(value)}" for key, value in self.summary().items() if value is not None][:6]
        return f"{type(self).__name__}({', '.join([repr(self.name), *shown] if self.name else shown)})"

    def line(self) -> str:
        """Return the name and the values of a table for people, on one line."""
        shown = [f"{key} {_cell(value)}" for key, value in self.columns().items() if value is not None]
        return f"{self.name}: {', '.join(shown)}"

    def _repr_html_(self) -> str:
        return html_table(self.rows())


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

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, as the command writes them for several sources."""
        return {"results": [result.to_dict() for result in self]}

    def __repr__(self) -> str:
        """Return the table."""
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


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
    rows = [
        flat(each.to_dict()) if full else {**(each.columns() if columns else {}), **each.summary()} for each in chosen
    ]
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
        results: one row for each; results of several kinds that have one name share a row.
        columns: names of columns, of those shown by default or of `Result.summary`.
        format: ``"markdown"``, ``"latex"`` (for the package booktabs) or ``"csv"`` (by default all columns of
            `Result.summary`, numbers in full precision).

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
        values = result.columns() if columns is None else {**result.summary(), **result.columns()}
        rows.setdefault((result.name, earlier[kind]), {}).update(values)
        earlier[kind] += 1
    present = list(dict.fromkeys(key for row in rows.values() for key in row))
    if missing := [key for key in columns or () if key not in present]:
        raise ConfigurationError(f"no result has a column {missing[0]!r}; the columns are {', '.join(present)}")
    chosen = [key for key in columns or present if any(row.get(key) is not None for row in rows.values())]
    return ["model", *chosen], [[name, *(_cell(row.get(key)) for key in chosen)] for (name, _), row in rows.items()]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
