"""Heads of other packages, found through entry points.

A package's ``pyproject.toml`` names its subclass of `Head`::

    [project.entry-points."softmax_bottleneck.heads"]
    my-head = "my_package:MyHead"
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from inspect import signature

from ..errors import ConfigurationError
from .base import Head

GROUP = "softmax_bottleneck.heads"


def find(name: str) -> type[Head] | None:
    """Return the head that an installed package registers under ``name``, or ``None``.

    Raises:
        ConfigurationError: when it does not load, is no head, or two packages claim the name.
    """
    found = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not found:
        return None
    if len(found) > 1:
        raise ConfigurationError(
            f"the head {name!r} is registered by several packages: {', '.join(map(_package, found.values()))}; "
            "uninstall all but one"
        )
    [point] = found.values()
    try:
        head = point.load()
    except Exception as error:  # whatever another package's code may raise
        raise ConfigurationError(
            f"the head {name!r} of {_package(point)} does not load ({type(error).__name__}: {error}); repair or "
            "uninstall that package"
        ) from error
    if not (isinstance(head, type) and issubclass(head, Head)):
        raise ConfigurationError(
            f"the head {name!r} of {_package(point)} is {point.value}, which is no subclass of "
            "softmax_bottleneck.heads.Head; repair or uninstall that package"
        )
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature(head).parameters.values()):
        raise ConfigurationError(
            f"the head {name!r} of {_package(point)} takes any settings; let its constructor name each of them"
        )
    return head


def names() -> list[str]:
    """Return the names that installed packages register, sorted."""
    return sorted(entry_points(group=GROUP).names)


def _package(point: EntryPoint) -> str:
    return f"the package {point.dist.name}" if point.dist is not None else f"entry point {point.value}"
