"""The decorator that gives a command its opened SOURCE, with all options that decide how it is opened."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from .options import check_written, device_option

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source

Command = TypeVar("Command", bound=Callable[..., Any])

HUGGING_FACE = (
    "revision",
    "context_length",
    "stride",
    "bos",
    "batch_size",
    "vocab",
    "precise",
    "dataset",
    "allow_pickle",
)
"""The fields of `HuggingFaceOptions` that are options of the command."""

_LEAST_ONE = click.IntRange(min=1)
_TEXT = (
    click.option(
        "--data",
        metavar="CORPUS|FILE.txt",
        help="Text that the model reads: a corpus, or a .txt file for a Hugging Face model.  "
        "[default: the corpus of the run; python-docs for a Hugging Face model]",
    ),
    click.option(
        "--split",
        type=click.Choice(["train", "valid", "test"]),
        default="test",
        show_default=True,
        help="Split of the corpus.",
    ),
    click.option("--contexts", type=_LEAST_ONE, metavar="N", help="Measure only the first N contexts.  [default: all]"),
)
_KIND = click.option(
    "--kind",
    type=click.Choice(["log-probs", "logits", "matrix"]),
    default="log-probs",
    show_default=True,
    help="What a matrix file holds. Logits are normalized row by row; a matrix of kind matrix is measured as it is.",
)
_DTYPE = click.option(
    "--dtype",
    type=click.Choice(["float32", "float64", "bfloat16", "float16", "auto"]),
    default="float32",
    show_default=True,
    help="Type that the model runs in. Types narrower than float32, and auto (the type it was saved in), apply only "
    "to the body of a Hugging Face model; its output layer stays in float32.",
)
_HUGGING_FACE = (
    click.option("--revision", metavar="NAME", help="Branch, tag or commit of a model on the Hugging Face hub."),
    click.option(
        "--context-length",
        type=_LEAST_ONE,
        help="Tokens in each window of the text.  [default: the model's limit, at most 1,024]",
    ),
    click.option(
        "--stride",
        type=_LEAST_ONE,
        help="Tokens between the starts of two successive windows.  [default: half a window]",
    ),
    click.option(
        "--bos",
        type=click.Choice(["auto", "on", "off"]),
        default="auto",
        show_default=True,
        help="Begin every window with the beginning-of-sequence token; auto does so if the tokenizer does.",
    ),
    click.option(
        "--batch-size",
        type=_LEAST_ONE,
        help="Windows in one forward pass.  [default: as many as hold about 4,096 tokens]",
    ),
    click.option(
        "--vocab",
        type=click.Choice(["both", "model", "tokenizer"]),
        default="both",
        show_default=True,
        help="Which columns to measure when the output layer has more rows than the tokenizer has tokens.",
    ),
    click.option("--precise", is_flag=True, help="Compute the output layer of a Hugging Face model in float64."),
    click.option(
        "--hf-dataset",
        "dataset",
        metavar="NAME[:CONFIG]",
        help="Read the text from a dataset of the Hugging Face hub.",
    ),
    click.option(
        "--allow-pickle",
        is_flag=True,
        help="Accept pickled weights; only their numbers are read, and no code in them runs.",
    ),
)


OPENING = ("data", "split", "contexts", "kind", "dtype", "device")
"""The other options that decide how a source is opened."""


def with_source(*, count: int = 1, kind: bool = True, parallel: bool = False) -> Callable[[Command], Command]:
    """Return a decorator that adds the argument SOURCE and its options, and passes the opened source to the command.

    The command's output files are checked first, then all sources are opened, then the command runs. An option that
    only some of the sources take applies to those.

    Args:
        count: number of sources that the command takes, −1 for any number. With −1, names that end in ``.npz`` are
            saved spectra and are passed on as paths. The command receives ``source`` for 1, otherwise ``sources``.
        kind: whether the command accepts matrices, and so has ``--kind``.
        parallel: whether the command shares its work among the processes of torchrun; it then also receives
            ``processes`` and ``device``.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def opened(**given: Any) -> Any:
            names = given.pop("source") if count == 1 else given.pop("sources")
            names = (names,) if count == 1 else names
            check_written(given, sources=names, data=given["data"])
            options = _options(given)
            if not parallel:
                sources = _open(names, options, spectra=count < 0)
                return command(**given, **({"source": sources[0]} if count == 1 else {"sources": sources}))
            from softmax_bottleneck.parallel import launched

            with launched() as processes:
                (source,) = _open(names, options, spectra=False)
                return command(source=source, processes=processes, device=options["device"], **given)

        wrapped: Any = opened
        for option in reversed((*_TEXT, *((_KIND,) if kind else ()), _DTYPE, device_option, *_HUGGING_FACE)):
            wrapped = option(wrapped)
        if count == 1:
            return click.argument("source")(wrapped)
        several = "SOURCE…" if count < 0 else " ".join(["SOURCE"] * count)
        return click.argument("sources", nargs=count, required=True, metavar=several)(wrapped)

    return decorate


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of `Opening` from ``given`` and return those that are not at their defaults."""
    from softmax_bottleneck.models.huggingface.options import HuggingFaceOptions
    from softmax_bottleneck.sources.opening import DEFAULTS

    read = HuggingFaceOptions(**{name: given.pop(name) for name in HUGGING_FACE})
    options = {name: given.pop(name) for name in OPENING if name in given}
    options |= {"hugging_face": None if read == HuggingFaceOptions() else read}
    kept: Mapping[str, Any] = DEFAULTS
    return {name: value for name, value in options.items() if value != kept[name] or name == "device"}


def _open(names: Sequence[str], options: Mapping[str, Any], *, spectra: bool) -> list[Source | Path]:
    """Open each source with the options that it takes; refuse an option that no source takes."""
    from softmax_bottleneck.sources import find, open_source

    wanted = [name for name in names if not (spectra and name.endswith(".npz"))]
    takes = {name: {"contexts", "device", *find(name).takes} for name in wanted}
    known = set().union(*takes.values())
    return [
        open_source(name, **{key: value for key, value in options.items() if key in takes[name] or key not in known})
        if name in takes
        else Path(name)
        for name in names
    ]
