"""The command ``bottleneck``: each command parses, calls one library function, and prints.

Nothing heavy is imported before a command runs: ``--help`` answers without torch.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import rich_click as click
from click.exceptions import Exit, NoArgsIsHelpError

from softmax_bottleneck.core import plugins
from softmax_bottleneck.core.interruption import INTERRUPTIONS, Terminated
from softmax_bottleneck.core.version import __version__
from softmax_bottleneck.errors import BottleneckError, first_line, unknown

from .signals import handled_signals
from .streams import echo, flush_output, usable_streams
from .verbosity import with_verbosity

COMMANDS = {
    "demo": "demo",
    "data": "data",
    "presets": "presets",
    "train": "train",
    "eval": "evaluate",
    "copy": "copy",
    "dump": "dump",
    "rank": "rank",
    "spectrum": "spectrum",
    "kld": "kld",
    "synthetic": "synthetic",
    "compare": "compare",
    "gradient": "gradient",
    "argmaxable": "argmaxable",
    "report": "report",
    "figures": "figures",
    "bench": "bench",
    "doctor": "doctor",
}
"""Command name → module of this package that holds it as ``command``."""

OUT_OF_MEMORY = "out of memory: lower --max-memory, measure fewer --contexts, or train with a smaller batch_size"
TOO_LARGE = re.compile(
    "maximum allowed dimension exceeded|array is too big|overflow when unpacking long|size calculation overflowed|"
    "multiplication overflow|without overflow|too large to convert",
    re.IGNORECASE,
)
"""What NumPy and torch say of sizes and numbers beyond their types."""
TOO_LARGE_ERRORS = (ValueError, RuntimeError, TypeError)
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""A place in memory, as Python shows objects without a name."""
FAILED, INTERRUPTED, TERMINATED = 1, 130, 143
COMPLETE = "_BOTTLENECK_COMPLETE"
"""Variable in which a shell asks for completions."""


class LazyGroup(click.RichGroup):
    """A group whose commands are imported when they are needed, and that always exits with a documented code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in their usual order of use; commands of other packages come last."""
        return [*COMMANDS, *plugins.names("commands")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            command: click.Command | None = plugins.find("commands", cmd_name)
        else:
            command = import_module(f".{COMMANDS[cmd_name]}", __name__).command
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
        """Run the command line and exit: with 0, or an exit code and one sentence on standard error."""
        arguments = sys.argv[1:] if args is None else [*args]
        with usable_streams():
            self._complete(prog_name or "bottleneck")
            with handled_signals(_say_interrupted):
                code = self._code(prog_name or "bottleneck", arguments)
        raise SystemExit(code)

    def _complete(self, prog_name: str) -> None:
        """Answer a shell that asks for completions, and exit."""
        try:
            self._main_shell_completion({}, prog_name)
        except (SystemExit, KeyError, ValueError) as end:
            if isinstance(end, SystemExit) and not end.code:
                raise
            echo(
                f"Error: {COMPLETE}={os.environ.get(COMPLETE, '')!r} is not a question of bash, zsh or fish for "
                "completions: unset it, or let the shell set it together with COMP_WORDS and COMP_CWORD",
                err=True,
            )
            raise SystemExit(FAILED) from end

    def _code(self, prog_name: str, arguments: list[str]) -> int:
        """Run the command line; return its exit code."""
        try:
            code = self._run(prog_name, arguments)
            flush_output()
            return code
        except INTERRUPTIONS as stop:
            _say_interrupted(getattr(stop, "__notes__", ()))
            return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
        except Exception as error:
            code, sentence = explained(error)
            with suppress(OSError):  # it is what the sentence is about, or comes after it
                flush_output()
            echo(f"Error: {ADDRESS.sub('', sentence)}", err=True)
            return code

    def _run(self, prog_name: str, arguments: list[str]) -> int:
        try:
            with self.make_context(prog_name, [*arguments]) as context:
                self.invoke(context)
        except Exit as end:
            return end.exit_code
        except SystemExit as end:
            return FAILED if isinstance(end.code, str) else end.code or 0
        return 0


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog="Example: bottleneck demo")
@click.version_option(__version__, prog_name="bottleneck")
def main() -> None:
    """How much of the next-token distribution can a language model's output layer express?"""


def explained(error: Exception) -> tuple[int, str]:
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
    # torch raises a subclass for a GPU that is out of memory, but a plain RuntimeError for the CPU.
    full = isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)
    if full or isinstance(error, MemoryError):
        return FAILED, OUT_OF_MEMORY
    if isinstance(error, TOO_LARGE_ERRORS) and TOO_LARGE.search(text):
        return FAILED, f"{SENTENCES[OverflowError]} ({first_line(error)})"
    if isinstance(error, BrokenPipeError):
        return FAILED, "standard output was closed before the result was written; the command must be run again"
    if isinstance(error, OSError):
        what = f"cannot read or write {error.filename}" if error.filename else "cannot read a file or write the result"
        return FAILED, f"{what} ({error.strerror or text}); check its name, its permissions and the disk"
    for kind, sentence in SENTENCES.items():
        if isinstance(error, kind):
            return FAILED, f"{sentence} ({text})"
    raise error


SENTENCES: dict[type[Exception], str] = {
    EOFError: "a file is incomplete; copy it again",
    RecursionError: "a file or setting is nested too deeply; write it with fewer levels",
    OverflowError: "a number is too large; give a smaller one",
    UnicodeError: "a name or a text is not UTF-8; rename or save it in UTF-8",
    ImportError: "a package cannot be loaded; install it again, or give the process more memory",
}
"""Sentences for errors that can leave any library."""


def _say_interrupted(notes: Sequence[str] = ()) -> None:
    """Print the sentence for an interruption; ``notes`` say what is kept."""
    echo("; ".join(["interrupted", *notes]), err=True)
