"""The decorator that gives a command its opened SOURCE, with all options that decide how it is opened."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import rich_click as click
from click.core import ParameterSource

from softmax_bottleneck.core.options import LAYER, OPENING, Opening, Option
from softmax_bottleneck.errors import SourceError

from .options import Command, options_of, progress, refused
from .paths import Input

if TYPE_CHECKING:
    from softmax_bottleneck.results.base import Result
    from softmax_bottleneck.sources import Source


def with_source(
    *,
    count: int = 1,
    kind: bool = True,
    device: bool = False,
    parallel: bool = False,
    saved: Callable[[str], bool] | None = None,
    metavar: str = "[LABEL=]SOURCE…",
) -> Callable[[Command], Command]:
    """Return a decorator that adds the argument SOURCE and its options, and passes the opened source to the command.

    The command's output files are checked first, then all sources are opened, then the command runs. An option that
    only some of the sources take applies to those.

    Args:
        count: number of sources that the command takes, −n for n or more. For 1 the command receives ``source``,
            otherwise ``sources``: the opened sources by their labels, which users give as LABEL=SOURCE, with options of
            one source after it, as in "q4=q4.npy --kind logits".
        kind: whether the command accepts matrices, and so has ``--kind``.
        device: whether the command computes beyond the source's rows, and so receives ``device``.
        parallel: whether the command shares its work among the processes of torchrun; it then also receives
            ``processes`` and ``device``.
        saved: whether a name is that of saved results, which are passed on as paths.
        metavar: several sources as the help names them.
    """
    shown = {name: option for name, option in OPENING.items() if option.panel and (kind or name != "kind")}

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def opened(source: str = "", sources: Sequence[str] = (), **given: Any) -> Any:
            if not given.get("checkpoints"):
                sources = [run for each in sources for run in _runs_in(each)]
            if len(sources) < -count:
                raise click.UsageError(f"the command takes {-count} sources or more, not {len(sources)}")
            if given.get("data"):
                from softmax_bottleneck.corpora.own import check_named

                check_named(given["data"])  # before PyTorch is imported
            from softmax_bottleneck.sources import labelled

            if given.get("checkpoints"):
                from softmax_bottleneck.measure import checkpoints

                sources = [str(path) for folder in sources for path in checkpoints(folder)]
            parsed = [(source, {})] if count == 1 else [_own_options(each, shown) for each in sources]
            names = [name for name, _ in parsed]
            named = {source: source} if count == 1 else refused(labelled, names)
            own = dict(zip(named, (more for _, more in parsed), strict=True))
            options = {name: given.pop(name) for name in shown}

            def run(**more: Any) -> Any:
                opened = _open(named, options, saved, own)
                if len(opened) > 1 and not given.get("dry_run"):
                    for each in opened.values():
                        if not isinstance(each, Path):
                            each.prepare(progress())  # each is what it is said to be, before one is measured
                return command(**given, **more, **({"source": opened[source]} if count == 1 else {"sources": opened}))

            if not parallel:
                return run(**({"device": options["device"]} if device else {}))
            from softmax_bottleneck.core.parallel import launched

            with launched() as processes:
                return run(processes=processes, device=options["device"])

        wrapped: Any = options_of(shown)(opened)
        if count == 1:
            return click.argument("source", type=Input())(wrapped)
        return click.argument("sources", nargs=-1, required=True, metavar=metavar, type=Input())(wrapped)

    return decorate


def with_layer(command: Command) -> Command:
    """Add the argument SOURCE and the options of an output layer that needs no text; the command opens it itself."""
    return click.argument("source", type=Input())(cast(Any, options_of(LAYER)(command)))


def _runs_in(name: str) -> list[str]:
    """Return the runs and models in a folder of nothing else, otherwise the name."""
    from softmax_bottleneck.core.files import exists

    folder = Path(name)
    inside = sorted(folder.glob("*/config.json")) if exists(folder) and not any(folder.glob("*.json")) else []
    return [str(each.parent) for each in inside] or [name]


def given_options() -> list[str]:
    """Return the options that open a source, as they were given to this command."""
    context, words = click.get_current_context(), []
    assert context is not None
    for each in context.command.params:
        name = str(each.name)
        if name in OPENING and name != "device" and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            words += [each.opts[0], *([] if getattr(each, "is_flag", False) else [str(context.params[name])])]
    return words


def _own_options(text: str, shown: Mapping[str, Option]) -> tuple[str, dict[str, Any]]:
    """Return a source and the options after it, as in ``"q4=q4.npy --kind logits"``."""
    name, dashes, rest = text.partition(" --")
    if not dashes or Path(text).exists():
        return text, {}
    command = click.command(name)(options_of(shown)(lambda **given: given))
    path = getattr(click.get_current_context(), "command_path", name)  # whose help an error names
    try:
        words = shlex.split(dashes + rest)
    except ValueError as error:
        raise click.UsageError(f"the options of {name} cannot be read: {error}") from error
    with command.make_context(path, words) as context:
        return name, {
            key: value
            for key, value in context.params.items()
            if context.get_parameter_source(key) is ParameterSource.COMMANDLINE
        }


def _open(
    named: Mapping[str, str],
    options: Mapping[str, Any],
    saved: Callable[[str], bool] | None,
    own: Mapping[str, Mapping[str, Any]],
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
    rest: Any = {label: name for label, name in named.items() if name not in results}
    alone: Any = [own[label] for label in rest]
    opened = iter(open_sources(rest.values(), cast("Opening", options), alone))
    return {label: Path(name) if name in results else next(opened) for label, name in named.items()}


def measure_all(
    sources: dict[str, Source], measure: Callable[[Source], Result], show: Callable[[Sequence[Result]], None]
) -> list[Result]:
    """Measure each source, and its tokenizer's tokens alone, name each result by its label, and show all results.

    An error or an interruption ends the measurements; the results before it are shown.
    """
    from softmax_bottleneck.sources.measurement import results_of

    results: list[Result] = []
    try:
        for result in results_of(sources, measure):
            results.append(result)
    finally:
        if results:
            show(results)
    return results
