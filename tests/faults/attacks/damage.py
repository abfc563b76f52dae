"""Ways to damage a file: each takes its path and leaves something else there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Damage = Callable[[Path], object]


def write(data: bytes) -> Damage:
    """Replace the content."""
    return lambda path: path.write_bytes(data)


def cut(share: float) -> Damage:
    """Keep the first part of the content."""
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def flip(place: float, bit: int = 0) -> Damage:
    """Change one bit, at this share of the content or, for a whole number, in this byte."""

    def apply(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[place if isinstance(place, int) else min(int(place * len(data)), len(data) - 1)] ^= 1 << bit
        path.write_bytes(bytes(data))

    return apply


def folder_instead(path: Path) -> None:
    """Put a folder in place of the file."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    """Put a link to itself in place of the file."""
    path.unlink()
    path.symlink_to(path)


def pipe_instead(path: Path) -> None:
    """Put a pipe that nothing writes to in place of the file."""
    path.unlink()
    os.mkfifo(path)


def remove(path: Path) -> None:
    """Remove the file or folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def inside(name: str, damage: Damage) -> Damage:
    """Damage the file of this name in a folder."""
    return lambda folder: damage(folder / name)


def with_value(place: str, value: Any) -> Damage:
    """Change one value of a JSON file, named by keys joined by dots; `REMOVED` removes it."""

    def apply(path: Path) -> None:
        content = json.loads(path.read_bytes())
        *parents, last = place.split(".")
        section = content
        for parent in parents:
            section = section[int(parent) if isinstance(section, list) else parent]
        if value is REMOVED:
            del section[last]
        else:
            section[int(last) if isinstance(section, list) else last] = value
        path.write_text(json.dumps(content))

    return apply


class _Removed:
    def __repr__(self) -> str:
        return "removed"


REMOVED = _Removed()

NO_JSON: Mapping[str, Damage] = {
    "empty": write(b""),
    "cut short": cut(0.6),
    "one byte": write(b"{"),
    "null": write(b"null"),
    "a number": write(b"7"),
    "a text": write(b'"softmax-bottleneck"'),
    "a list of numbers": write(b"[1, 2, 3]"),
    "a list of lists": write(b"[[], []]"),
    "an empty object": write(b"{}"),
    "nested 100,000 deep": write(b"[" * 100_000 + b"]" * 100_000),
    "objects nested 100,000 deep": write(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "a number of 10,000 digits": write(b'{"format": ' + b"9" * 10_000 + b"}"),
    "NUL bytes": write(b"\0" * 200),
    "UTF-16": lambda path: path.write_bytes(path.read_text(encoding="utf-8").encode("utf-16")),
    "no UTF-8": write(b'{"a": "\xff\xfe\x80"}'),
    "half a surrogate": write(b'["\\ud800", "\\udfff"]'),
    "terminal escapes": write(b'{"\\u001b[2J": "\\u001b]0;title\\u0007", "format": "\\u001b[31m"}'),
    "not a number": write(b'{"a": NaN, "b": Infinity}'),
    "a folder": folder_instead,
    "a link to itself": loop,
    "removed": remove,
}
"""Damage that leaves no content of use in any JSON file."""
