"""The command ``bottleneck``: each command parses, calls one library function, and prints.

Nothing heavy is imported before a command runs: ``--help`` answers without torch.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NoReturn

import rich_click as click
from click.exceptions import Exit, NoArgsIsHelpError

from softmax_bottleneck.core import plugins
from softmax_bottleneck.core.interruption import INTERRUPTIONS, Terminated
from softmax_bottleneck.core.version import __version__
from softmax_bottleneck.errors import BottleneckError, first_line, unknown

from .options import with_verbosity
from .outputs import echo, flush_output, say_interrupted

if TYPE_CHECKING:
    from .process import Signals

COMMANDS = {
    "demo": "demo:command", "data": "data:command", "presets": "runs:presets", "train": "runs:train",
    "eval": "runs:evaluate", "copy": "runs:copy", "dump": "measures:dump", "rank": "rank:command",
    "spectrum": "drawing:spectrum", "kld": "measures:kld", "synthetic": "synthetic:command",
    "compare": "measures:compare", "gradient": "measures:gradient", "head": "measures:head", "need": "measures:need",
    "argmaxable": "measures:argmaxable", "identify": "measures:identify", "report": "drawing:report",
    "figures": "drawing:figures", "bench": "bench:command", "doctor": "doctor:command",
}  # fmt: skip
"""The commands in their usual order of use, each with its module in this package and its name there."""

FAILED = 1


class LazyGroup(click.RichGroup):
    """A group whose commands are imported when they are needed, and that always exits with a documented code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in their usual order of use; commands of other packages come last."""
        return [*COMMANDS, *plugins.names("commands")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name in COMMANDS:
            return with_verbosity(resolve_name(f"{__name__}.{COMMANDS[cmd_name]}"))
        command: click.Command | None = plugins.find("commands", cmd_name)
        return None if command is None else with_verbosity(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; refuse an unknown one with the name that is meant."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(unknown("command", args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **extra: Any
    ) -> NoReturn:
        """Run the command line and exit."""
        raise SystemExit(self.exit_code(prog_name or "bottleneck", args))

    def exit_code(self, prog_name: str, args: Sequence[str] | None = None, *, signals: Signals | None = None) -> int:
        """Run the command line; return 0, or an exit code after one sentence on standard error.

        ``signals`` are what interrupts this process, if it is the command's own.
        """
        try:
            code = 0
            try:
                self._main_shell_completion({}, prog_name)
                with self.make_context(prog_name, [*(sys.argv[1:] if args is None else args)]) as context:
                    self.invoke(context)
            except Exit as end:
                code = end.exit_code
            flush_output()
            return code
        except (*INTERRUPTIONS, Exception) as error:
            if (number := _signal_behind(error, signals)) is not None:
                if signals is not None:
                    signals.ignore()
                return say_interrupted(number, getattr(error, "__notes__", ()))
            code, sentence = explained(error)
            with suppress(OSError):  # it is what the sentence is about, or comes after it
                flush_output()
            echo(f"Error: {ADDRESS.sub('', sentence)}", err=True)
            return code


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="Example: bottleneck demo --out demo",
)
@click.version_option(__version__, prog_name="bottleneck")
def main() -> None:
    """How much of the next-token distribution can a language model's output layer express?"""


OUT_OF_MEMORY = "out of memory: lower --max-memory, measure fewer --contexts, or train with a smaller batch_size"
NUMBER_TOO_LARGE = "a number is too large; give a smaller one"
TOO_LARGE = (
    "maximum allowed dimension exceeded|array is too big|overflow when unpacking long|size calculation overflowed|"
    "multiplication overflow|without overflow|too large to convert"
)
"""What NumPy and torch say of sizes and numbers beyond their types."""
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""A place in memory, as Python shows objects without a name."""
SENTENCES: list[tuple[type[Exception], str, str]] = [
    (MemoryError, "", OUT_OF_MEMORY),
    # torch raises a subclass for a GPU that is out of memory, but a plain RuntimeError for the CPU.
    (RuntimeError, "out of memory|can't allocate memory", OUT_OF_MEMORY),
    *((kind, TOO_LARGE, NUMBER_TOO_LARGE) for kind in (ValueError, RuntimeError, TypeError)),
    (BrokenPipeError, "", "standard output was closed before the result was written; the command must be run again"),
    (EOFError, "", "a file is incomplete; copy it again"),
    (RecursionError, "", "a file or setting is nested too deeply; write it with fewer levels"),
    (OverflowError, "", NUMBER_TOO_LARGE),
    (UnicodeError, "", "a name or a text is not UTF-8; rename or save it in UTF-8"),
    (ImportError, "", "a package cannot be loaded; install it again, or give the process more memory"),
]
"""Sentences for errors that can leave any library: the error, what its text holds, and the sentence."""


def _signal_behind(error: BaseException, signals: Signals | None) -> int | None:
    """Return the signal that led to an error; a library may make another error of an interruption."""
    if isinstance(error, INTERRUPTIONS):
        return signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
    return None if signals is None else signals.received


def explained(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the sentence for an error; an error that only a mistake in the code makes is raised."""
    if isinstance(error, NoArgsIsHelpError):
        click.echo(error.message)
        return error.exit_code, f"{error.ctx.command_path if error.ctx else 'bottleneck'} needs a command"
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "bottleneck"
        return error.exit_code, f"{error.format_message().rstrip('.')}; see '{path} --help'"
    if isinstance(error, BottleneckError):
        return FAILED, error.for_command
    text = str(error)
    for kind, pattern, sentence in SENTENCES:
        if isinstance(error, kind) and re.search(pattern, text, re.IGNORECASE):
            return FAILED, sentence if sentence == OUT_OF_MEMORY else f"{sentence} ({first_line(error)})"
    if isinstance(error, OSError):
        what = f"cannot read or write {error.filename}" if error.filename else "cannot read a file or write the result"
        return FAILED, f"{what} ({error.strerror or text}); check its name, its permissions and the disk"
    raise error
