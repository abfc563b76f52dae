"""The decorator that gives a command its opened SOURCE, with all options that decide how it is opened."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from softmax_bottleneck.errors import SourceError

from .completion import completing, corpus_names, files
from .options import check_written, device_option, progress

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source

Command = TypeVar("Command", bound=Callable[..., Any])

_LEAST_ONE = click.IntRange(min=1)
_LABELLED = re.compile(r"(?P<label>[^=/]+)=(?P<source>.+)", re.DOTALL)
_what = functools.partial(click.option, panel="What to measure")
_hugging_face = functools.partial(click.option, panel="Hugging Face models")
_SOURCE = (
    _what(
        "--data",
        metavar="CORPUS|FILE.txt",
        shell_complete=completing(corpus_names),
        help="Text that the model reads: a corpus, or a .txt file for a Hugging Face model.  "
        "[default: the corpus of the run; python-docs for a Hugging Face model]",
    ),
    _what(
        "--split",
        type=click.Choice(["train", "valid", "test"]),
        default="test",
        show_default=True,
        help="Split of the corpus.",
    ),
    _what("--contexts", type=_LEAST_ONE, metavar="N", help="Measure only the first N contexts.  [default: all]"),
)
_KIND = _what(
    "--kind",
    type=click.Choice(["log-probs", "logits", "matrix"]),
    default="log-probs",
    show_default=True,
    help="What a matrix file holds. Logits are normalized row by row; a matrix of kind matrix is measured as it is.",
)
_DTYPE = _what(
    "--dtype",
    type=click.Choice(["float32", "float64", "bfloat16", "float16", "auto"]),
    default="float32",
    show_default=True,
    help="Type that the model runs in. Types narrower than float32, and auto (the type it was saved in), apply only "
    "to the body of a Hugging Face model; its output layer stays in float32.",
)
_HUGGING_FACE = (
    _hugging_face("--revision", metavar="NAME", help="Branch, tag or commit of a model on the Hugging Face hub."),
    _hugging_face(
        "--context-length",
        type=_LEAST_ONE,
        help="Tokens in each window of the text.  [default: the model's limit, at most 1,024]",
    ),
    _hugging_face(
        "--stride",
        type=_LEAST_ONE,
        help="Tokens between the starts of two successive windows.  [default: half a window]",
    ),
    _hugging_face(
        "--bos",
        type=click.Choice(["auto", "on", "off"]),
        default="auto",
        show_default=True,
        help="Begin every window with the beginning-of-sequence token; auto does so if the tokenizer does.",
    ),
    _hugging_face(
        "--batch-size",
        type=_LEAST_ONE,
        help="Windows in one forward pass.  [default: as many as hold about 4,096 tokens]",
    ),
    _hugging_face(
        "--vocab",
        type=click.Choice(["both", "model", "tokenizer"]),
        default="both",
        show_default=True,
        help="Which columns to measure when the output layer has more rows than the tokenizer has tokens.",
    ),
    _hugging_face("--precise", is_flag=True, help="Compute the output layer of a Hugging Face model in float64."),
    _hugging_face(
        "--hf-dataset",
        "dataset",
        metavar="NAME[:CONFIG]",
        help="Read the text from a dataset of the Hugging Face hub.",
    ),
    _hugging_face(
        "--allow-pickle",
        is_flag=True,
        help="Accept pickled weights; only their numbers are read, and no code in them runs.",
    ),
)


OPENING = ("data", "split", "contexts", "kind", "dtype", "device")
"""The other options that decide how a source is opened."""


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

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def opened(**given: Any) -> Any:
            names = given.pop("source") if count == 1 else given.pop("sources")
            if count > 1 and len(names) != count:
                raise click.UsageError(f"the command takes {count} sources, not {len(names)}")
            named = {names: names} if count == 1 else labelled(names)
            check_written(given, sources=named.values(), data=given["data"])

            def run(**more: Any) -> Any:
                sources = _open(named, options, saved)
                if len(sources) > 1 and not given.get("dry_run"):
                    _prepare(sources.values())
                return command(**given, **more, **({"source": sources[names]} if count == 1 else {"sources": sources}))

            options = _options(given)
            if not parallel:
                return run(**({"device": options["device"]} if device else {}))
            from softmax_bottleneck.parallel import launched

            with launched() as processes:
                return run(processes=processes, device=options["device"])

        wrapped: Any = opened
        for option in reversed((*_SOURCE, *((_KIND,) if kind else ()), _DTYPE, device_option, *_HUGGING_FACE)):
            wrapped = option(wrapped)
        if count == 1:
            return click.argument("source", shell_complete=files)(wrapped)
        several = "[LABEL=]SOURCE…" if count < 0 else " ".join(["SOURCE"] * count)
        return click.argument("sources", nargs=-1, required=True, metavar=several, shell_complete=files)(wrapped)

    return decorate


def _prepare(sources: Iterable[Source | Path]) -> None:
    """Check that each source is what it is said to be, before the first is measured."""
    for source in sources:
        if not isinstance(source, Path):
            source.prepare(progress())


def labelled(names: Sequence[str]) -> dict[str, str]:
    """Return sources by label: of LABEL=SOURCE the label, otherwise the name without folder and suffix.

    A name that several sources would share begins with their folders. An existing file or folder whose name holds an
    equals sign is a source without a label.

    Example:
        >>> labelled(["runs/mos", "Softmax=runs/a", "x/spectrum.npz", "y/spectrum.npz"])
        {'mos': 'runs/mos', 'Softmax': 'runs/a', 'x/spectrum': 'x/spectrum.npz', 'y/spectrum': 'y/spectrum.npz'}
    """
    from softmax_bottleneck.result import short_names

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


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of `Opening` from ``given`` and return those that are not at their defaults."""
    from softmax_bottleneck.models.huggingface.options import HuggingFaceOptions
    from softmax_bottleneck.sources.opening import DEFAULTS

    read = HuggingFaceOptions(**{field.name: given.pop(field.name) for field in fields(HuggingFaceOptions)})
    options = {name: given.pop(name) for name in OPENING if name in given}
    options |= {"hugging_face": None if read == HuggingFaceOptions() else read}
    kept: Mapping[str, Any] = DEFAULTS
    return {name: value for name, value in options.items() if value != kept[name] or name == "device"}


def _open(
    named: Mapping[str, str], options: Mapping[str, Any], saved: Callable[[str], bool] | None
) -> dict[str, Source | Path]:
    """Open each source with the options that it takes; refuse an option that no source takes."""
    from softmax_bottleneck.sources import find, open_source

    wanted = [name for name in named.values() if saved is None or not saved(name)]
    takes = {name: {"contexts", "device", *find(name).takes} for name in wanted}
    known = set().union(*takes.values())
    if not wanted and (given := sorted(options.keys() - {"device"})):
        raise click.UsageError(f"{', '.join(given)}: saved results were measured before, and no option changes them")
    if missing := [name for name in named.values() if name not in takes and not Path(name).exists()]:
        raise SourceError(f"there is no file {missing[0]}")
    return {
        label: open_source(name, **{key: options[key] for key in options if key in takes[name] or key not in known})
        if name in takes
        else Path(name)
        for label, name in named.items()
    }
