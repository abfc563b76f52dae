"""Extensions that other packages register through entry points.

A package's ``pyproject.toml`` names its extensions, such as a head::

    [project.entry-points."softmax_bottleneck.heads"]
    my-head = "my_package:MyHead"

The groups are ``softmax_bottleneck.heads``, ``.sources``, ``.backbones``, ``.corpora`` and ``.commands``; see
docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ..errors import ConfigurationError, unknown

GROUP = "softmax_bottleneck."
"""Prefix of the name of every group."""


def find(group: str, name: str) -> Any:
    """Return the object that an installed package registers under a name, or ``None``.

    Args:
        group: ``"heads"``, ``"sources"``, ….
        name: name of the entry point.

    Raises:
        ConfigurationError: when it does not load, or several packages register the name.
    """
    points = {point.value: point for point in entry_points(group=GROUP + group, name=name)}
    if len(points) > 1:
        raise ConfigurationError(
            f"{name!r} of {GROUP}{group} is registered by several packages: "
            f"{', '.join(map(_package, points.values()))}; uninstall all but one"
        )
    return next(map(_load, points.values()), None)


def find_class(group: str, name: str, base: type, registry: Mapping[str, type], what: str, *more: str) -> Any:
    """Return the subclass of ``base`` that a registry or an installed package has under a name.

    Args:
        group: ``"heads"``, ``"sources"``, ….
        name: key of the registry, or name of the entry point.
        base: class that a package's must be a subclass of.
        registry: classes of this package by name.
        what: what the classes are, for errors; ``more`` are other names that are known.

    Raises:
        ConfigurationError: for an unknown name; the text lists the known ones. Also for a package's class that does
            not load, is not a subclass of ``base``, or is one of several of that name.
    """
    plugin = (registry.get(name) or find(group, name)) if isinstance(name, str) else None
    if plugin is None:
        raise ConfigurationError(unknown(what, name, [*more, *registry, *names(group)]))
    if isinstance(plugin, type) and issubclass(plugin, base):
        return plugin
    [point] = entry_points(group=GROUP + group, name=name)
    raise ConfigurationError(
        f"{name!r} of {_package(point)} is {point.value}, which is not a subclass of {GROUP}{group}."
        f"{base.__name__}; repair or uninstall that package"
    )


def names(group: str) -> list[str]:
    """Return the names that installed packages register in a group, sorted."""
    return sorted(entry_points(group=GROUP + group).names)


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever another package's code may raise
        raise ConfigurationError(
            f"{point.name!r} of {_package(point)} does not load ({type(error).__name__}: {error}); repair or uninstall "
            "that package"
        ) from error


def _package(point: EntryPoint) -> str:
    return f"the package {point.dist.name}" if point.dist is not None else f"entry point {point.value}"
