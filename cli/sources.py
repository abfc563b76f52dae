"""The decorator that gives a command its opened SOURCE, with all options that decide how it is opened."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import rich_click as click

from softmax_bottleneck.core.options import OPENING, Opening
from softmax_bottleneck.errors import SourceError

from .completion import files
from .options import Command, options_of, progress
from .outputs import check_outputs

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source

_LABELLED = re.compile(r"(?P<label>[^=/]+)=(?P<source>.+)", re.DOTALL)


def is_spectrum(name: str) -> bool:
    """Return whether a name is that of a saved spectrum."""
    return name.endswith(".npz")


def with_source(
    *,
    count: int = 1,
    kind: bool = True,
    device: bool = False,
    parallel: bool = False,
    saved: Callable[[str], bool] | None = None,
) -> Callable[[Command], Command]:
    """Return a decorator that adds the argument SOURCE and its options, and passes the opened source to the command.

    The command's output files are checked first, then all sources are opened, then the command runs. An option that
    only some of the sources take applies to those.

    Args:
        count: number of sources that the command takes, −1 for any number. For 1 the command receives ``source``,
            otherwise ``sources``: the opened sources by their labels, which users give as LABEL=SOURCE.
        kind: whether the command accepts matrices, and so has ``--kind``.
        device: whether the command computes beyond the source's rows, and so receives ``device``.
        parallel: whether the command shares its work among the processes of torchrun; it then also receives
            ``processes`` and ``device``.
        saved: whether a name is that of saved results, which are passed on as paths.
    """
    shown = {name: option for name, option in OPENING.items() if option.panel and (kind or name != "kind")}

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def opened(source: str = "", sources: Sequence[str] = (), **given: Any) -> Any:
            if count > 1 and len(sources) != count:
                raise click.UsageError(f"the command takes {count} sources, not {len(sources)}")
            named = {source: source} if count == 1 else labelled(sources)
            check_outputs(given, sources=named.values(), data=given["data"])
            options = {name: given.pop(name) for name in shown}

            def run(**more: Any) -> Any:
                opened = _open(named, options, saved)
                if len(opened) > 1 and not given.get(
                    "dry_run"
                ):  # each is what it is said to be, before one is measured
                    for each in opened.values():
                        if not isinstance(each, Path):
                            each.prepare(progress())
                return command(**given, **more, **({"source": opened[source]} if count == 1 else {"sources": opened}))

            if not parallel:
                return run(**({"device": options["device"]} if device else {}))
            from softmax_bottleneck.core.parallel import launched

            with launched() as processes:
                return run(processes=processes, device=options["device"])

        wrapped: Any = options_of(shown)(opened)
        if count == 1:
            return click.argument("source", shell_complete=files)(wrapped)
        several = "[LABEL=]SOURCE…" if count < 0 else " ".join(["SOURCE"] * count)
        return click.argument("sources", nargs=-1, required=True, metavar=several, shell_complete=files)(wrapped)

    return decorate


def labelled(names: Sequence[str]) -> dict[str, str]:
    """Return sources by label: of LABEL=SOURCE the label, otherwise the name without folder and suffix.

    A name that several sources would share begins with their folders. An existing file or folder whose name holds an
    equals sign is a source without a label.

    Example:
        >>> labelled(["runs/mos", "Softmax=runs/a", "x/spectrum.npz", "y/spectrum.npz"])
        {'mos': 'runs/mos', 'Softmax': 'runs/a', 'x/spectrum': 'x/spectrum.npz', 'y/spectrum': 'y/spectrum.npz'}
    """
    from softmax_bottleneck.results.base import short_names

    matches = [None if _exists(name) else _LABELLED.match(name) for name in names]
    labels = [match["label"] if match else short for match, short in zip(matches, short_names(names), strict=True)]
    for place, label in enumerate(labels):
        if labels.count(label) > 1 and any(match and match["label"] == label for match in matches):
            raise click.UsageError(f"the label {label!r} stands for {labels.count(label)} sources; give each its own")
        if label in labels[:place]:  # the same source again
            labels[place] = f"{label} ({place + 1})"
    places = [match["source"] if match else name for match, name in zip(matches, names, strict=True)]
    return dict(zip(labels, places, strict=True))


def _exists(name: str) -> bool:
    """Return whether a source is a file or folder, or an array in a file, FILE:NAME."""
    return Path(name).exists() or Path(name.rpartition(":")[0] or name).exists()


def _open(
    named: Mapping[str, str], options: Mapping[str, Any], saved: Callable[[str], bool] | None
) -> dict[str, Source | Path]:
    """Open each source that is not a name of saved results."""
    from softmax_bottleneck.sources import open_sources

    results = [name for name in named.values() if saved is not None and saved(name)]
    chosen = sorted({name for name, value in options.items() if value != OPENING[name].default} - {"device"})
    if chosen and len(results) == len(named):
        names = ", ".join(chosen)
        raise click.UsageError(f"{names}: saved results were measured before, and no option changes them")
    if missing := [name for name in results if not Path(name).exists()]:
        raise SourceError(f"the file {missing[0]} does not exist")
    opened = iter(open_sources([name for name in named.values() if name not in results], cast("Opening", options)))
    return {label: Path(name) if name in results else next(opened) for label, name in named.items()}
