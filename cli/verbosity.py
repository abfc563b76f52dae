"""What every command shows beside its result: the options ``--quiet`` and ``--verbose``, and that PyTorch is loaded."""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any

import rich_click as click

LOADING = "loading PyTorch …"
QUIET = "softmax_bottleneck.quiet"
"""Key of `click.Context.meta`: whether progress is not shown."""


def with_verbosity(command: click.Command) -> click.Command:
    """Add ``--quiet`` and ``--verbose`` to a command, and to the commands of a group, unless it has them.

    A terminal also shows that PyTorch is being loaded, which takes seconds.
    """
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_verbosity(each)
    elif not any(parameter.name == "quiet" for parameter in command.params):
        flag: dict[str, Any] = {"is_flag": True, "expose_value": False}
        command.params += [
            click.Option(["-q", "--quiet"], callback=_set_quiet, help="Show no progress.", **flag),
            click.Option(["-v", "--verbose"], callback=_set_verbose, help="Log each step to standard error.", **flag),
        ]
        callback = command.callback
        assert callback is not None

        @functools.wraps(callback)
        def after_loading(*arguments: Any, **options: Any) -> Any:
            if sys.stderr.isatty() and "torch" not in sys.modules:
                click.echo(LOADING + "\r", nl=False, err=True)
                import torch  # noqa: F401

                click.echo(" " * len(LOADING) + "\r", nl=False, err=True)
            return callback(*arguments, **options)

        command.callback = after_loading
    return command


def is_quiet() -> bool:
    """Return whether the running command is to show no progress."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


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
