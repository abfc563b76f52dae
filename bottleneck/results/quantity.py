"""One number or sentence of a result, and the forms that every view of a result takes it in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Flag, auto
from typing import Any

import numpy as np

ENDS = ("low", "high", "determinate", "standard_error")
"""Attributes of an interval or an estimate that have a column of their own beside its ``value``."""


class Shown(Flag):
    """Where people see a quantity; JSON holds it in any case."""

    NOWHERE = 0
    ANSWER = auto()
    """In the lines that answer the question."""
    DETAIL = auto()
    """In the lines of ``--details``, which also hold the answer."""
    TABLE = auto()
    """As a column of a table of several results, and of a data frame."""
    FRAME = auto()
    """As a column of a data frame, which a table shows on request."""


NOWHERE, ANSWER, DETAIL, TABLE, FRAME = Shown.NOWHERE, Shown.ANSWER, Shown.DETAIL, Shown.TABLE, Shown.FRAME


@dataclass(frozen=True)
class Quantity:
    """One number or sentence of a result."""

    key: str | tuple[str, ...]
    """Key in JSON, where dots nest, or the keys from the outermost one; empty for a line that only restates others."""
    value: Any
    """A plain value, or an object with ``to_dict`` or fields, such as an interval with ``low``, ``high``, ``value``."""
    label: str = ""
    """Label of its line and heading of its column."""
    shown: Shown = ANSWER
    text: str = ""
    """Text for people; by default made of the value."""

    def __str__(self) -> str:
        """Return the text for people."""
        return self.text or cell(self.value)

    def columns(self) -> Iterator[tuple[str, Any]]:
        """Yield the columns of a data frame, by key: the value, and the ends of an interval."""
        key = (self.key if isinstance(self.key, str) else ".".join(self.key)) or self.label
        if not hasattr(self.value, "value"):
            yield key, self.value
            return
        yield key, self.value.value
        for name in ENDS:
            if hasattr(self.value, name):
                yield f"{key}_{name}", getattr(self.value, name)


def cell(value: Any) -> str:
    """Return a value as a cell of a table."""
    if value is None or isinstance(value, str):
        return "–" if value is None else value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def plain(value: Any) -> Any:
    """Return a value as JSON holds it: fields by name, arrays as lists, keys as strings."""
    for own in ("plain", "to_dict"):
        if hasattr(value, own):
            return getattr(value, own)()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [plain(each) for each in value] if isinstance(value, list | tuple | range) else value


def put(values: dict[str, Any], key: str | tuple[str, ...], value: Any) -> None:
    """Set a value by its key, see `Quantity.key`."""
    *folders, last = key.split(".") if isinstance(key, str) else key
    for name in folders:
        values = values.setdefault(name, {})
    values[last] = plain(value)


def doubts_of(source: Mapping[str, Any]) -> str:
    """Return what is doubtful of a source by its description, or an empty string."""
    return "; ".join(str(source[key]) for key in ("mismatch", "note") if source.get(key))
