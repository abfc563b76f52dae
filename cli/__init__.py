"""The command ``bottleneck``: each command parses, calls one library function, and prints.

Nothing heavy is imported before a command runs: ``--help`` answers without torch.
"""

from __future__ import annotations

import signal
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import rich_click as click

from softmax_bottleneck import plugins
from softmax_bottleneck._version import __version__
from softmax_bottleneck.errors import BottleneckError

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
    "figures": "figures",
    "bench": "bench",
    "doctor": "doctor",
}
"""Command name → module of this package that holds it as ``command``."""

CONTINUED = ("demo", "train", "dump", "rank", "spectrum", "synthetic")
"""Commands that continue after an interruption."""

OUT_OF_MEMORY = "out of memory: lower --max-memory, measure fewer --contexts, or train with a smaller batch_size"
FAILED, INTERRUPTED, TERMINATED = 1, 130, 143


class Terminated(BaseException):
    """SIGTERM was received: unwind as for Ctrl-C, so that files being written stay whole."""


class LazyGroup(click.RichGroup):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in their usual order of use; commands of other packages come last."""
        return [*COMMANDS, *plugins.names("commands")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            found: click.Command | None = plugins.find("commands", cmd_name)
            return found
        command: click.Command = import_module(f".{COMMANDS[cmd_name]}", __name__).command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; report an error as one sentence and an exit code."""
        try:
            return super().invoke(ctx)
        except BottleneckError as error:
            _fail(str(error))
        except MemoryError:
            _fail(OUT_OF_MEMORY)
        except RuntimeError as error:
            # torch raises a subclass for a GPU that is out of memory, but a plain RuntimeError for the CPU.
            if "out of memory" not in str(error) and "can't allocate memory" not in str(error):
                raise
            _fail(OUT_OF_MEMORY)
        except (KeyboardInterrupt, Terminated) as stop:
            goes_on = ctx.invoked_subcommand in CONTINUED
            kept = "; finished work is saved, and the same command continues it" if goes_on else ""
            click.echo(f"interrupted{kept}", err=True)
            raise SystemExit(TERMINATED if isinstance(stop, Terminated) else INTERRUPTED) from None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog="Example: bottleneck demo")
@click.version_option(__version__, prog_name="bottleneck")
def main() -> None:
    """How much of the next-token distribution can a language model's output layer express?"""
    signal.signal(signal.SIGTERM, _terminate)


def _fail(sentence: str) -> NoReturn:
    """Print one unwrapped line, which logs and scripts can search, and exit with 1."""
    click.echo(f"Error: {sentence}", err=True)
    raise SystemExit(FAILED)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
