"""Options that several or all commands share, and the names that the shell completes for them."""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar, cast

import rich_click as click

from softmax_bottleneck.core.checks import check_positive
from softmax_bottleneck.core.options import DEVICES, OPENING, RANK, Option, check_options
from softmax_bottleneck.errors import ConfigurationError

from .paths import Folder, Input, Output, Text, check_outputs, holds_result

if TYPE_CHECKING:
    from softmax_bottleneck.core.progress import Progress

Command = TypeVar("Command", bound=Callable[..., Any])
Complete = Callable[[click.Context, click.Parameter, str], list[str]]
PRESETS = "softmax_bottleneck.training.presets:PRESETS"
FIGURES = "softmax_bottleneck.figures:REGISTRY"
HEADS = "softmax_bottleneck.heads:REGISTRY"
CORPORA = "softmax_bottleneck.corpora:catalogue"
PRETRAINED = "softmax_bottleneck.hugging_face.pretrained:PRETRAINED"
"""Places of names that the shell completes, see `completing`."""
QUIET = "softmax_bottleneck.quiet"
"""Key of `click.Context.meta`: whether progress is not shown."""
MANY = 10
"""Number of options above which ``--help`` shows those in `COMMON`, and ``--help-all`` shows all."""
COMMON = {
    "alphas", "as_format", "cache", "config_file", "contexts", "data", "details", "device", "dims", "dynamic",
    "examples", "family", "finetune", "help", "help_all", "json_to", "kind", "limit", "models", "out", "pairs",
    "part", "preset", "preset_name", "resume", "sample", "settings", "split", "vocabs",
    "max_kl", "min_agreement", "max_ppl_ratio",
}  # fmt: skip
"""Names of the options that people use."""
LEAST = 1 << 20
"""A number of bytes below this one, without a unit, is a mistake."""


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


class Count(click.IntRange):
    """A whole number, by default of at least 1."""

    name = "whole number"

    def __init__(self, min: int = 1, max: int | None = None) -> None:  # noqa: A002 (as click has it)
        super().__init__(min, max)


def memory(text: str) -> int:
    """Read ``8GiB``, ``500 MB`` or a plain number of bytes."""
    from softmax_bottleneck.core.machine import parse_size

    try:
        size = parse_size(text) or 0
    except ConfigurationError as error:
        raise click.BadParameter(str(error)) from error
    if size < LEAST and text.strip().isdecimal():
        raise click.BadParameter(f"{text.strip()} bytes are too few: did you mean {text.strip()}GiB?")
    return size


def pair(text: str) -> tuple[int, int]:
    """Read ``2000,500``."""
    match = re.fullmatch(r"\s*([1-9][0-9]*)\s*,\s*([1-9][0-9]*)\s*", text)
    if not match:
        raise click.BadParameter(f"{text!r} is not a pair of numbers above zero; write it as 2000,500")
    return int(match[1]), int(match[2])


def drawn(text: str) -> str | int:
    """Read ``all`` or a number of pairs."""
    if text != "all" and not (text.isdecimal() and len(text) < 19):
        raise click.BadParameter(f"{text!r} is neither 'all' nor a number below 10^18")
    return text if text == "all" else int(text)


def method(name: str) -> str:
    """Refuse an unknown spectrum method; only a name other than ``auto`` loads the registry."""
    if name != "auto":
        from softmax_bottleneck.spectrum.choice import find

        refused(find, name)
    return name


def device(name: str) -> str:
    """Refuse a device that torch does not know; whether it is here shows where it is used."""
    if name not in DEVICES:
        from softmax_bottleneck.core.devices import known

        refused(known, name)
    return name


def eps(text: str) -> str:
    """Refuse what is neither the name of a type nor a number between 0 and 1."""
    from softmax_bottleneck.spectrum import precision

    refused(precision, text)
    return text


def refused(function: Callable[[Any], Any], given: Any) -> Any:
    """Return what a function makes of a value; its `ConfigurationError` is one of usage."""
    try:
        return function(given)
    except ConfigurationError as error:
        raise click.BadParameter(str(error)) from error


def _name(text: str) -> str:
    if not text:
        raise ValueError
    return text


NAMES = _name, "names"
WHOLE = int, "whole numbers; write it as 2,10,50"
NUMBERS = float, "numbers; write it as 0.1,1"


def listed(name: str, field: str, of: tuple[Callable[[str], Any], str], **more: Any) -> Callable[[Command], Command]:
    """Return an option whose values are separated by commas or given one by one; ``None`` without any."""
    return click.option(name, field, **_list(of), **more)


def _list(of: tuple[Callable[[str], Any], str]) -> dict[str, Any]:
    read, what = of

    def values(text: str) -> list[Any]:
        try:
            return [read(part.strip()) for part in text.strip().removesuffix(",").split(",")]
        except ValueError as error:
            raise click.BadParameter(f"{text!r} is not a list of {what}") from error

    def joined(ctx: click.Context, param: click.Parameter, given: Sequence[list[Any]]) -> Any:
        return tuple(chain(*given)) or None

    return {"type": values, "multiple": True, "callback": joined}


def options_of(options: Mapping[str, Option]) -> Callable[[Command], Command]:
    """Return a decorator that gives a command these options."""

    def decorate(command: Command) -> Command:
        for name, option in reversed([*options.items()]):
            how: dict[str, Any] = {"help": option.help, "panel": option.panel, "metavar": option.metavar}
            if option.choices:
                how["type"] = click.Choice(option.choices)
            elif option.reads:
                how["type"] = Input()
            elif option.check is check_positive:
                how["type"] = Count()
            how |= SPECIAL.get(name, {})
            if option.check:
                how["callback"] = _checking(option, how.get("callback"))
            flag = option.flag or name.replace("_", "-")
            how |= {"default": option.default, "is_flag": option.default is False}
            command = click.option(f"--{flag}", name, **how)(command)
        return command

    return decorate


def _checking(option: Option, read: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return click's callback of an option: what ``read`` makes of the value, refused where it is out of range."""

    def value(context: click.Context, parameter: click.Parameter, given: Any) -> Any:
        given = read(context, parameter, given) if read else given
        refused(lambda each: check_options({parameter.name: option}, {parameter.name: each}), given)
        return given

    return value


SPECIAL: Mapping[str, dict[str, Any]] = {
    "data": {"type": Text(), "shell_complete": completing(CORPORA)},
    "method": {"type": method},
    "max_memory": {"type": memory},
    "device": {"type": device},
    **{key: {"type": float} for key in ("scale", "softcap", "max_kl", "min_agreement", "max_ppl_ratio")},
    "eps": {"type": eps},
    "pairs": {"type": drawn},
    "ranks": _list(WHOLE),
    "save": {"type": Folder("rank-*.safetensors")},
}
"""What click is told of some options in addition."""
device_option = options_of({"device": OPENING["device"]})
json_option = click.option(
    "--json",
    "json_to",
    type=Output("a result of this tool", is_own=holds_result),
    metavar="FILE|-",
    help="Write the result as JSON to FILE; - means standard output.",
    panel="Output",
)
format_option = click.option(
    "--format",
    "as_format",
    type=click.Choice(["lines", "table", "markdown", "latex", "csv", "json"]),
    panel="Output",
    help="Format of the printed result.  [default: lines for one SOURCE, table for several]",
)
memory_option = options_of({"max_memory": RANK["max_memory"]})
style_option = click.option(
    "--style",
    type=click.Choice(["screen", "iclr", "icml", "icml-wide", "neurips"]),
    default="screen",
    help="Fonts and width of a venue.",
)


def progress() -> Progress:
    """Return a progress report on standard error: a silent one after ``--quiet`` and in torchrun's other processes."""
    from softmax_bottleneck.core.progress import SILENT, StreamProgress

    context = click.get_current_context(silent=True)
    is_quiet = context is not None and context.meta.get(QUIET)
    return SILENT if is_quiet or os.environ.get("RANK", "0") != "0" else StreamProgress(sys.stderr)


def example(line: str) -> str:
    """Return the last line of a help text: an example that works as printed once ``bottleneck demo`` has run."""
    return f"Example: {line}"


def with_verbosity(command: click.Command) -> click.Command:
    """Add what every command has to a command, and to those of a group: some options, and the check of its outputs."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_verbosity(each)
    elif not any(parameter.name == "quiet" for parameter in command.params):
        command.callback = _checked(cast(Any, command.callback))
        flag: dict[str, Any] = {"is_flag": True, "expose_value": False}
        command.params += [
            click.Option(["-q", "--quiet"], callback=_set_quiet, help="Show no progress.", **flag),
            click.Option(["-v", "--verbose"], callback=_set_verbose, help="Log each step to standard error.", **flag),
        ]
        if len(command.params) > MANY:
            eager = {**flag, "is_eager": True, "callback": _show_help}
            command.add_help_option = False
            command.params += [
                click.Option(["-h", "--help"], help="Show the options that people use.", **eager),
                click.Option(["--help-all"], help="Show all options.", **eager),
            ]
    return command


def _checked(callback: Command) -> Command:
    @functools.wraps(callback)
    def checked(**given: Any) -> Any:
        context = click.get_current_context()
        assert context is not None
        check_outputs(context)
        return callback(**given)

    return cast(Command, checked)


def _show_help(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Print the help, of ``--help`` with the common options alone, and exit."""
    if not value or context.resilient_parsing:
        return
    rare = [each for each in context.command.params if isinstance(each, click.Option) and each.name not in COMMON]
    for each in rare:
        each.hidden = parameter.name == "help"
    click.echo(context.get_help(), color=context.color)
    for each in rare:
        each.hidden = False
    context.exit()


def _set_quiet(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[QUIET] = value


def _set_verbose(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Show the records of the package's logger during the command; otherwise they stay silent below warnings."""
    if value:
        logger, handler = logging.getLogger("softmax_bottleneck"), logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(relativeCreated)7.0f ms  %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        context.call_on_close(lambda: logger.removeHandler(handler))
