"""A kind of source: how it is recognized and opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

from ..core.options import HUGGING_FACE, OPENING
from ..language_models import Source


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of SOURCE: how it is recognized and opened. To add one, see docs/extending.md."""

    what: str
    """Description with its article, such as ``"a run folder"``."""
    matches: Callable[[Any], bool]
    """Return whether an object, or a path or name as a string, is of this kind; called in the registry's order."""
    open: Callable[..., Source]
    """Open a source. Parameters with the name of an option of `Opening` receive that option; others need a default.
    ``hugging_face`` receives all options of `HuggingFaceOptions`."""

    @property
    def takes(self) -> tuple[str, ...]:
        """The options of `Opening` that reach ``open``."""
        names = [name for name in signature(self.open).parameters if name in OPENING]
        return (*names, *(HUGGING_FACE if "hugging_face" in names else ()))


def named(suffixes: tuple[str, ...]) -> Callable[[Any], bool]:
    """Return a function that tests whether a source is a name with one of these suffixes, in lower or upper case."""
    return lambda source: isinstance(source, str) and source.lower().endswith(suffixes)
