"""``bottleneck dump``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .options import example, progress
from .outputs import Folder, echo
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source


@click.command("dump", epilog=example("bottleneck dump demo/runs/mos --out demo/mos.zarr"))
@with_source()
@click.option("--out", required=True, type=Folder(), metavar="STORE.zarr", help="Store to write.")
def command(source: Source, out: Path) -> None:
    """Write the matrix of log-probabilities to a Zarr store; the same command continues an interrupted dump."""
    from softmax_bottleneck.measure.dumping import dump

    dump(source, out, progress=progress())
    T, M = source.shape
    echo(f"{out}: {T:,} contexts × {M:,} tokens, {source.dtype}")
