"""The options ``--quiet`` and ``--verbose``, which every command has."""

from __future__ import annotations

import logging
import sys

import rich_click as click

QUIET = "softmax_bottleneck.quiet"
"""Key of `click.Context.meta`: whether progress is not shown."""


def with_verbosity(command: click.Command) -> click.Command:
    """Add ``--quiet`` and ``--verbose`` to a command, and to the commands of a group, unless it has them."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_verbosity(each)
    elif not any(parameter.name == "quiet" for parameter in command.params):
        command.params += [
            click.Option(
                ["-q", "--quiet"],
                is_flag=True,
                expose_value=False,
                callback=_set_quiet,
                help="Show no progress.",
            ),
            click.Option(
                ["-v", "--verbose"],
                is_flag=True,
                expose_value=False,
                callback=_set_verbose,
                help="Log each step to standard error.",
            ),
        ]
    return command


def is_quiet() -> bool:
    """Return whether the running command was asked to show no progress."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def _set_quiet(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[QUIET] = value


def _set_verbose(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Show the records of the package's logger; without the option they stay silent below warnings."""
    logger = logging.getLogger("softmax_bottleneck")
    for handler in [each for each in logger.handlers if each.get_name() == QUIET]:
        logger.removeHandler(handler)
    if value:
        handler = logging.StreamHandler(sys.stderr)
        handler.set_name(QUIET)
        handler.setFormatter(logging.Formatter("%(relativeCreated)7.0f ms  %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
