"""The exceptions of this package.

An error's text says what was received, what is allowed, and what to do. The command line prints it as one
sentence and exits with 1 (2 for wrong usage).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar

Entry = TypeVar("Entry")
MANY, FEW = 20, 5
"""An error lists all known names up to the first number, and of more names only the second number."""


class Parameter(NamedTuple):
    """A parameter that a text names: in Python an argument, in a command an option."""

    name: str
    value: str | int | None = None
    flag: str | None = None
    """Name of the option, if it is another one."""

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"

    @property
    def for_command(self) -> str:
        """Return it as an option of a command."""
        return f"--{self.flag or self.name.replace('_', '-')}" + (f" {self.value}" if self.value is not None else "")


class Function(NamedTuple):
    """A function of the package that a text names, and the command of its name."""

    name: str
    method: str = ""
    """Method of the result that does what the command does, if no function of its name does."""

    def __str__(self) -> str:
        return self.method or f"{self.name}()"

    @property
    def for_command(self) -> str:
        """Return it as a command."""
        return f"'bottleneck {self.name}'"


class Sentence(str):
    """A text in the words of Python, which JSON holds too; a command prints that with the names of its own options.

    Example:
        >>> text = Sentence(Function("rank"), " with a larger ", Parameter("eps"))
        >>> print(text)
        rank() with a larger eps
        >>> print(text.for_command)
        'bottleneck rank' with a larger --eps
    """

    for_command: str
    """The text with the names of commands and their options."""

    def __new__(cls, *parts: str | Parameter | Function | BottleneckError) -> Self:
        """Join the parts of a text, which may be sentences themselves, or errors."""
        text = super().__new__(cls, "".join(map(str, parts)))
        text.for_command = "".join(map(for_command, parts))
        return text


def for_command(part: object) -> str:
    """Return a text, or a part of one, as a command prints it."""
    return part if type(part) is str else getattr(part, "for_command", str(part))


class BottleneckError(Exception):
    """Base of all errors raised by this package.

    Args:
        parts: the text in pieces; a `Parameter` or `Function` is shown by a command as its option or its command.

    Example:
        >>> error = BottleneckError("raise ", Parameter("max_memory"), ", or use ", Parameter("method", "sketch"))
        >>> print(error)
        raise max_memory, or use method='sketch'
        >>> print(error.for_command)
        raise --max-memory, or use --method sketch
    """

    def __init__(self, *parts: str | Parameter | Function) -> None:
        super().__init__(*parts)

    def __str__(self) -> str:
        return "".join(map(str, self.args))

    @property
    def for_command(self) -> str:
        """The text with the names of the command's options."""
        return "".join(map(for_command, self.args))


class ConfigurationError(BottleneckError):
    """A setting is unknown, missing or out of range."""


class CorpusError(BottleneckError):
    """A corpus is unknown, incomplete, damaged or does not fit a vocabulary."""


class RunError(BottleneckError):
    """A run folder is incomplete, changed, or was written by another tool."""


class StoreError(BottleneckError):
    """A log-probability store is incomplete, damaged, or does not match what is being written."""


class MatrixError(BottleneckError):
    """A matrix is empty, not two-dimensional, not finite, or not what it is said to be."""


class SourceError(BottleneckError):
    """A SOURCE is of no kind that can be measured."""


class TrainingError(BottleneckError):
    """Training cannot continue."""


class ParallelError(BottleneckError):
    """Another process of the same computation has ended."""


class OutputError(BottleneckError):
    """A result could not be written."""


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, with the next one after a colon, or its class where it has none.

    Example:
        >>> first_line(ValueError("no row\\n  at line 3")), first_line(MemoryError()), first_line(OSError("a:\\n b"))
        ('no row', 'MemoryError', 'a: b')
    """
    first, *others = str(error).strip().splitlines() or [type(error).__name__]
    return f"{first} {others[0].strip()}" if others and first.endswith(":") else first


def look_up(what: str, name: object, registry: Mapping[str, Entry]) -> Entry:
    """Return the entry of this name; `ConfigurationError` lists the known names."""
    if not isinstance(name, str) or name not in registry:
        raise ConfigurationError(unknown(what, name, registry))
    return registry[name]


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """Return the sentence for a name that is not known: the known names, or of many the nearest, and which is meant.

    Example:
        >>> unknown("head", "mso", ["softmax", "mos", "moc"])
        "unknown head 'mso'; known heads are softmax, mos, moc; did you mean 'mos'?"
    """
    names = list(known)
    listed = names if len(names) <= MANY else list(dict.fromkeys([*nearest(name, names), *names]))[:FEW]
    others = f" and {len(names) - FEW} others" if len(names) > MANY else ""
    return f"unknown {what} {name!r}; known {what}s are {', '.join(listed)}{others}{meant(name, names)}"


def meant(name: object, known: Iterable[str]) -> str:
    """Return the question whether the nearest known name is meant, or an empty string if none is near."""
    near = nearest(name, list(known))
    return f"; did you mean {near[0]!r}?" if near else ""


def nearest(name: object, known: Sequence[str]) -> list[str]:
    """Return the known names that have a name as one of their parts, then those that are spelled almost as it is.

    Example:
        >>> nearest("mos", ["demo-softmax", "demo-mos", "mso"])
        ['demo-mos', 'mso']
    """
    whole = [each for each in known if str(name) in re.split(r"[-.]", each)]
    return list(dict.fromkeys([*whole, *difflib.get_close_matches(str(name), known, n=FEW)]))
