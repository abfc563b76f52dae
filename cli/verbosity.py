"""What every command has: ``--quiet``, ``--verbose``, help in two levels, and a note that PyTorch is being loaded."""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any

import rich_click as click

LOADING = "loading PyTorch …"
QUIET = "softmax_bottleneck.quiet"
"""Key of `click.Context.meta`: whether progress is not shown."""
MANY = 10
"""Number of options above which ``--help`` shows those in `COMMON`, and ``--help-all`` shows all."""
COMMON = {
    "alphas", "as_format", "cache", "config_file", "contexts", "data", "details", "device", "dims", "dynamic",
    "examples", "family", "finetune", "help", "help_all", "hours", "json_to", "kind", "limit", "models", "only", "out",
    "pairs", "part", "preset", "preset_name", "resume", "sample", "settings", "split", "vocabs",
}  # fmt: skip
"""Names of the options that people use."""


def with_verbosity(command: click.Command) -> click.Command:
    """Add the options of every command to a command, and to the commands of a group, unless it has them.

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
        if len(command.params) > MANY:
            eager = {**flag, "is_eager": True, "callback": _show_help}
            command.add_help_option = False
            command.params += [
                click.Option(["-h", "--help"], help="Show the options that people use.", **eager),
                click.Option(["--help-all"], help="Show all options.", **eager),
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
