"""The exceptions of this package.

An error's text says what was received, what is allowed, and what to do. The command line prints it as one
sentence and exits with 1 (2 for wrong usage).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

Entry = TypeVar("Entry")

_COMMAND_OR_OPTION = re.compile(
    r"('(?:bottleneck|rank|pip) [^']*'|`[^`]*`|--from [A-Z]+|--set\b)|--([a-z]+(?:-[a-z]+)*)"
)


class BottleneckError(Exception):
    """Base of all errors raised by this package.

    Texts are written for the command line, which prints them as they are. In Python, options appear as the keyword
    arguments of the same name.

    Example:
        >>> str(BottleneckError("raise --max-memory, or see 'bottleneck rank --help'"))
        "raise max_memory, or see 'bottleneck rank --help'"
    """

    @property
    def for_command(self) -> str:
        """The text with the names of the command's options."""
        return super().__str__()

    def __str__(self) -> str:
        """Return the text with the names of Python's keyword arguments."""
        return _COMMAND_OR_OPTION.sub(lambda match: match[1] or match[2].replace("-", "_"), self.for_command)


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


def first_line(error: Exception) -> str:
    """Return the first line of an exception's text, or its class where it has none.

    Example:
        >>> first_line(ValueError("no row\\n  at line 3")), first_line(MemoryError())
        ('no row', 'MemoryError')
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def look_up(what: str, name: object, registry: Mapping[str, Entry]) -> Entry:
    """Return the entry of this name; `ConfigurationError` lists the known names."""
    if not isinstance(name, str) or name not in registry:
        raise ConfigurationError(unknown(what, name, registry))
    return registry[name]


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """Return the sentence for a name that is not known, with the known name that is closest to it.

    Example:
        >>> unknown("head", "mso", ["softmax", "mos", "moc"])
        "unknown head 'mso'; known heads are softmax, mos, moc; did you mean 'mos'?"
    """
    names = list(known)
    return f"unknown {what} {name!r}; known {what}s are {', '.join(names)}{meant(name, names)}"


def meant(name: object, known: Iterable[str]) -> str:
    """Return the question whether the closest known name is meant, or an empty string if none is close."""
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
