"""``bottleneck doctor``."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from .measurements import aligned
from .options import example
from .outputs import echo_text


@click.command("doctor", epilog=example("bottleneck doctor demo/runs/softmax"))
@click.argument("path", required=False, type=click.Path(path_type=Path))
def command(path: Path | None) -> None:
    """Show versions, devices and threads; with PATH, also verify every byte of a run, store or prepared corpus."""
    from softmax_bottleneck.cli.environment import check, environment

    integrity = [] if path is None else [("integrity", check(path))]
    echo_text(aligned([*environment(), *integrity]))
