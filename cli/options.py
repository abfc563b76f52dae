"""Options that several commands share, and how results are printed."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

if TYPE_CHECKING:
    from softmax_bottleneck.progress import Progress

Command = TypeVar("Command", bound=Callable[..., Any])

_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


class Memory(click.ParamType[int]):
    """A number of bytes with a unit."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read ``8GiB``, ``500 MB`` or a plain number of bytes."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", str(value).lower())
        if not found or found[2] not in _UNITS:
            self.fail(f"{value!r} is no size; write it as 8GiB, 500MiB or a number of bytes", param, ctx)
        try:
            return int(float(found[1]) * _UNITS[found[2]])
        except ValueError:
            self.fail(f"{value!r} is no size; write it as 8GiB, 500MiB or a number of bytes", param, ctx)


class Counts(click.ParamType[tuple[int, int]]):
    """Two numbers above zero."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Read ``2000,500``."""
        found = re.fullmatch(r"\s*([1-9][0-9]*)\s*,\s*([1-9][0-9]*)\s*", str(value))
        if not found:
            self.fail(f"{value!r} is no pair of numbers above zero; write it as 2000,500", param, ctx)
        return int(found[1]), int(found[2])


class Method(click.ParamType[str]):
    """``auto``, or a method of the registry, which is loaded for any other name alone."""

    name = "method"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse an unknown name with the known ones."""
        if value != "auto":
            from softmax_bottleneck.errors import ConfigurationError
            from softmax_bottleneck.spectrum.registry import find

            try:
                find(value)
            except ConfigurationError as error:
                self.fail(str(error), param, ctx)
        return str(value)


def text_options(command: Command) -> Command:
    """Which text a model is evaluated on."""
    for option in (
        click.option(
            "--contexts", type=click.IntRange(min=1), metavar="N", help="Only the first N contexts.  [default: all]"
        ),
        click.option("--split", type=click.Choice(["train", "valid", "test"]), default="test", show_default=True),
        click.option("--data", metavar="CORPUS|FILE.txt", help="Another text than the run's own; a .txt for others."),
    ):
        command = option(command)
    return command


def kind_option(command: Command) -> Command:
    """What a matrix holds."""
    return click.option(
        "--kind",
        type=click.Choice(["log-probs", "logits", "matrix"]),
        default="log-probs",
        show_default=True,
        help="What a matrix file holds; logits are normalized first.",
    )(command)


def dtype_option(command: Command) -> Command:
    """What a model is evaluated in."""
    return click.option(
        "--dtype",
        type=click.Choice(["float32", "float64", "bfloat16", "float16", "auto"]),
        default="float32",
        show_default=True,
        help="Of the model; below float32, or auto as saved, only the body of a Hugging Face one.",
    )(command)


def hugging_face_options(command: Command) -> Command:
    """How a Hugging Face model is read: the command receives one ``hugging_face``."""
    least_one = click.IntRange(min=1)
    options = (
        click.option("--revision", metavar="NAME", help="Branch, tag or commit of a model of the Hugging Face hub."),
        click.option("--context-length", type=least_one, help="Tokens of a window.  [default: the model's, to 1,024]"),
        click.option("--stride", type=least_one, help="Tokens from window to window.  [default: half a window]"),
        click.option(
            "--bos",
            type=click.Choice(["auto", "on", "off"]),
            default="auto",
            show_default=True,
            help="Begin windows with the tokenizer's first token; auto: if it adds one itself.",
        ),
        click.option("--batch-size", type=least_one, help="Windows at once.  [default: about 4,096 tokens]"),
        click.option(
            "--vocab",
            type=click.Choice(["both", "model", "tokenizer"]),
            default="both",
            show_default=True,
            help="Whose tokens are the columns where a Hugging Face output layer is padded.",
        ),
        click.option("--precise", is_flag=True, help="Compute a Hugging Face output layer in float64."),
        click.option("--hf-dataset", "dataset", metavar="NAME[:CONFIG]", help="Text from a data set of the hub."),
        click.option("--allow-pickle", is_flag=True, help="Read numbers from pickled weights; no code of theirs runs."),
    )

    @functools.wraps(command)
    def with_options(**given: Any) -> Any:
        from softmax_bottleneck.logprobs import HuggingFaceOptions

        names = (
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
        settings = HuggingFaceOptions(**{name: given.pop(name) for name in names})
        return command(hugging_face=settings, **given)

    wrapped: Any = with_options
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def device_option(command: Command) -> Command:
    """Where models run."""
    return click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)(
        command
    )


def json_option(command: Command) -> Command:
    """Where the result goes as JSON."""
    return click.option(
        "--json", "json_to", metavar="FILE|-", help="Write the result as JSON to FILE, or - for standard output."
    )(command)


def emit(values: Any, text: str, json_to: str | None) -> None:
    """Print a result for people, or as one JSON object where that is asked for."""
    if json_to == "-":
        click.echo(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))
        return
    click.echo(text)
    if json_to is not None:
        from softmax_bottleneck.files import write_json

        write_json(Path(json_to), values)


def check_outputs(*paths: str | Path | None, sources: Iterable[str | Path] = (), data: str | None = None) -> None:
    """Refuse, before any work is done, files that cannot be written, that are read, or that two results go to."""
    from softmax_bottleneck.errors import OutputError
    from softmax_bottleneck.files import followed, is_special

    files = [Path(path) for path in paths if path is not None and str(path) != "-"]
    for path in files:
        if path.is_dir():
            raise OutputError(f"cannot write {path}: it is a folder; name a file in it")
        if is_special(path):
            continue
        folder = followed(path).parent
        if not folder.is_dir():
            raise OutputError(f"cannot write {path}: there is no folder {folder}; make it, or name another file")
        if not os.access(folder, os.W_OK):
            raise OutputError(f"cannot write {path}: the folder {folder} is not writable; name another file")
        if sum(os.path.realpath(path) == os.path.realpath(other) for other in files) > 1:
            raise OutputError(f"cannot write {path}: another result goes there; name another file")
        keep_inputs(path, sources, data)


def keep_inputs(output: Path, sources: Iterable[str | Path], data: str | None = None) -> None:
    """Refuse an output that is a SOURCE, lies in one that is a folder, or is a text that a model is evaluated on."""
    from softmax_bottleneck.corpora import SPLITS
    from softmax_bottleneck.errors import OutputError

    # What follows the colon is a tensor's name.
    places = [Path(re.sub(r"(\.safetensors):[^/]+$", r"\1", str(source))) for source in sources]
    texts = [Path(name) for name in (data, *map(_corpus_of, places)) if name is not None]
    read = [*places, *(file for place in places if place.is_dir() for file in place.iterdir())]
    read += [*texts, *(text / f"{split}.txt" for text in texts for split in SPLITS)]
    above = [place for place in places if Path(os.path.realpath(output)).is_relative_to(os.path.realpath(place))]
    same = [file for file in read if output.exists() and file.exists() and file.samefile(output)]
    if found := above + same:
        raise OutputError(f"cannot write {output}: it is part of what is read, {found[0]}; name another place")


def _corpus_of(place: Path) -> str | None:
    """Return the corpus of a run."""
    from softmax_bottleneck.checkpoint import is_run, read_config

    corpus = read_config(place).get("corpus") if is_run(place) else None
    return corpus.get("name") if isinstance(corpus, dict) else None


def progress() -> Progress:
    """Report on standard error."""
    from softmax_bottleneck.progress import StreamProgress

    return StreamProgress(sys.stderr)


def example(line: str) -> str:
    """Return the end of a help text: an example that works as printed, after ``bottleneck demo``."""
    return f"Example: {line}"
