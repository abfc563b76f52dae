"""Names that the shell completes: presets, heads, corpora and figures."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name

import rich_click as click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
PRESETS = "softmax_bottleneck.training.presets:PRESETS"
FIGURES = "softmax_bottleneck.figures:REGISTRY"
HEADS = "softmax_bottleneck.heads:REGISTRY"
CORPORA = "softmax_bottleneck.corpora:catalogue"
PRETRAINED = "softmax_bottleneck.hugging_face.pretrained:PRETRAINED"


def completing(*places: str) -> Complete:
    """Return the function that click calls to complete the last of several names separated by commas.

    A place is ``MODULE:NAME`` of a mapping or of a function that returns objects with names, imported when it is
    needed, or a group of entry points, under which other packages register names.
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        names = [name for place in places for name in _names(place)]
        return [before + comma + name for name in names if name.startswith(last)]

    return complete


def _names(place: str) -> list[str]:
    if ":" not in place:
        from softmax_bottleneck.core import plugins

        return plugins.names(place)
    found = resolve_name(place)
    return [each.name for each in found()] if callable(found) else [*found]


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ask the shell to complete a file or folder."""
    return [CompletionItem(incomplete, type="file")]
