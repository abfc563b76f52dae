"""Read JSON that this tool or Hugging Face wrote, and that may be damaged or made to do harm.

Its size is limited, its form is checked against a schema, and every fault is one sentence with the file and the place
in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from annotated_types import Interval

from ..errors import BottleneckError
from .checks import shown
from .files import open_file

LARGEST = 1 << 27
"""Bytes of the largest file, or line, that is read: several times the words of a large vocabulary."""

Count = Annotated[int, Interval(ge=0, lt=2**63)]
"""A number of things: not negative, and below the limit of 64 bits."""
Size = Annotated[int, Interval(ge=1, lt=2**53)]
"""A length of a matrix."""
Magnitude = Annotated[float, Interval(ge=0)]
"""A number that is not negative."""


def read_json(path: Path, schema: Any = Any, *, error: type[BottleneckError], remedy: str, finite: bool = False) -> Any:
    """Return the content of a file as plain values.

    Args:
        path: file in UTF-8.
        schema: type that the content must have, as pydantic reads it, such as ``list[str]``, a typed dictionary or a
            dataclass; further keys are allowed.
        error: class of the errors.
        remedy: end of the sentence, which says what to do.
        finite: whether to refuse numbers that are not finite, and integers of more than 64 bits.

    Raises:
        error: the file is missing, cannot be read or is too large, or its content is not JSON, too deep, or not of the
            schema.
    """
    return explain_read_errors(path, error, remedy, lambda: parse_json(_bytes(path), schema, finite=finite))


def read_json_lines(path: Path, schema: Any = Any, *, error: type[BottleneckError], remedy: str) -> list[Any]:
    """Return the content of a file that holds one JSON value a line; see `read_json`."""

    def parse() -> list[Any]:
        with open_file(path) as file:
            return [*json_values(file, schema)]

    values: list[Any] = explain_read_errors(path, error, remedy, parse)
    return values


def json_values(file: BinaryIO, schema: Any = Any) -> Iterator[Any]:
    """Yield the values in a file that holds one a line; `ValueError` names the line that cannot be read."""
    for number, line in enumerate(iter(lambda: file.readline(LARGEST + 1), b""), 1):
        try:
            if line.strip():
                yield parse_json(line, schema)
        except ValueError as fault:
            raise ValueError(f"line {number}: {fault}") from None


def json_if_any(path: Path) -> Any:
    """Return the content of a file, or ``None`` for a file that is missing or cannot be read."""
    try:
        return parse_json(_bytes(path))
    except (OSError, ValueError):
        return None


def parse_json(text: str | bytes, schema: Any = Any, *, finite: bool = False) -> Any:
    """Return the plain values in a text; see `read_json`.

    Raises:
        ValueError: it is too long, not JSON in UTF-8, nested too deeply, or not of the schema; one line says where.
    """
    if len(text) > LARGEST:
        raise ValueError(f"it has more than {LARGEST:,} bytes")
    hooks: dict[str, Any] = {"parse_float": _finite, "parse_constant": _finite, "parse_int": _integer} if finite else {}
    try:
        content = json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text, **hooks)
    except UnicodeDecodeError as fault:
        raise ValueError(f"the byte {fault.start} is not UTF-8") from None
    except json.JSONDecodeError as fault:
        raise ValueError(f"it is not JSON at line {fault.lineno}, column {fault.colno}") from None
    except RecursionError:
        raise ValueError("its lists and objects are nested too deeply") from None
    except ValueError:  # also Python's limit on the digits of an integer
        raise ValueError("it holds a number that is out of range") from None
    if schema is not Any:
        check_schema(content, schema)
    return content


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError
    return value


def _integer(text: str) -> int:
    if abs(value := int(text)) >= 2**63:
        raise ValueError
    return value


def check_schema(content: Any, schema: Any) -> Any:
    """Return plain values as an instance of their schema; `ValueError` of one line for values of another form.

    Example:
        >>> check_schema([1, 2], tuple[int, int])
        (1, 2)
    """
    from pydantic import ValidationError

    try:
        # A dataclass is an object of JSON. Names of files need not be Unicode, and no schema restricts them.
        data = json.dumps(content, ensure_ascii=False).encode(errors="replace")
        return _validator(schema).validate_json(data, strict=True)
    except ValidationError as fault:
        raise ValueError(first_fault(fault)) from None


def first_fault(fault: Any) -> str:
    """Return the first fault that pydantic found as one line: the place, what is allowed, and what was received."""
    first = fault.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    message = " ".join(first["msg"].removeprefix("Value error, ").partition(" or instance of ")[0].split())
    message = (
        message.replace("Input should be", "it must be")
        .replace("a valid dictionary", "an object")
        .replace("an object", "an object of JSON")
    )
    if first["type"] == "missing":
        return f"{place} is missing"
    if first["type"] == "value_error":
        return f"{place}: {message}" if place else message
    return f"{place + ': ' if place else ''}{message[:1].lower()}{message[1:]}, not {shown(first['input'])}"


def _bytes(path: Path) -> bytes:
    with open_file(path) as file:
        return file.read(LARGEST + 1)


def explain_read_errors(path: Path, error: type[BottleneckError], remedy: str, work: Callable[[], Any]) -> Any:
    """Return what ``work`` makes of a file; its `OSError` and `ValueError` become an ``error`` that names the file."""
    try:
        return work()
    except OSError as fault:
        raise error(f"cannot read {path}: {fault.strerror or fault}; {remedy}") from fault
    except ValueError as fault:
        raise error(f"{path} is damaged or of another kind ({fault}); {remedy}") from fault


@cache
def _validator(schema: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(schema)
