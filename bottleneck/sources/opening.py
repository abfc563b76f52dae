"""A kind of source: how it is recognized and opened."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

from ..core.options import OPENING
from ..language_models import Source

_URL = re.compile(r"[a-z][a-z0-9+.]*://.+|[a-z][a-z0-9+.]*::.+")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of SOURCE: how it is recognized and opened. To add one, see docs/extending.md."""

    what: str
    """Description with its article, such as ``"a run folder"``."""
    matches: Callable[[Any], bool] = lambda source: False
    """For a kind of another package: whether an object, or a path or name as a string, is of it."""
    open: Callable[..., Source]
    """Open a source. Parameters with the name of an option of `Opening` receive that option; others need a default."""

    @property
    def takes(self) -> tuple[str, ...]:
        """The options of `Opening` that reach ``open``."""
        return tuple(name for name in signature(self.open).parameters if name in OPENING)


def named(suffixes: tuple[str, ...]) -> Callable[[Any], bool]:
    """Return a function that tests whether a source is a name with one of these suffixes, in lower or upper case."""
    return lambda source: isinstance(source, str) and source.lower().endswith(suffixes)


def is_url(source: Any) -> bool:
    """Return whether a source is a URL of fsspec: ``s3://bucket/m.zarr``, ``https://…``, ``simplecache::s3://…``."""
    return isinstance(source, str) and _URL.fullmatch(source) is not None
