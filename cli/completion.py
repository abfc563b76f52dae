"""Names that the shell completes: presets, heads, corpora and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import rich_click as click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def completing(names: Callable[[], Iterable[str]]) -> Complete:
    """Return the function that click calls to complete an argument or option by these names.

    The last of several names separated by commas is completed.
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in names() if name.startswith(last)]

    return complete


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ask the shell to complete a file or folder."""
    return [CompletionItem(incomplete, type="file")]


def corpus_names() -> list[str]:
    """Return the names of the corpora."""
    from softmax_bottleneck.corpora import catalogue

    return [info.name for info in catalogue()]


def kept_names() -> list[str]:
    """Return the names of what the cache may hold: the corpora and the pretrained models."""
    from softmax_bottleneck.hugging_face.pretrained import PRETRAINED

    return [*corpus_names(), *PRETRAINED]


def preset_names() -> Iterable[str]:
    """Return the names of the training presets."""
    from softmax_bottleneck.training.presets import PRESETS

    return PRESETS


def head_names() -> Iterable[str]:
    """Return the names of the heads, those of other packages last."""
    from softmax_bottleneck.core import plugins
    from softmax_bottleneck.heads import REGISTRY

    return [*REGISTRY, *plugins.names("heads")]


def figure_names() -> Iterable[str]:
    """Return the names of the figures and tables."""
    from softmax_bottleneck.figures import REGISTRY

    return REGISTRY
