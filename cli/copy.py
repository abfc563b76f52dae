"""``bottleneck copy``: a run without its training state."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from .options import example
from .outputs import echo, keep_inputs


@click.command("copy", epilog=example("bottleneck copy demo/runs/mos --out small"))
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="RUN", help="Folder of the copy.")
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float32"]),
    default="bfloat16",
    help="Type of the weights on disk; bfloat16 rounds them.",
)
def command(run: Path, out: Path, dtype: str) -> None:
    """Copy a finished run without its training state; every command takes the smaller copy."""
    import torch

    from softmax_bottleneck.language_models.checkpoint import copy_weights

    keep_inputs(out, [run])
    copied = copy_weights(run, out, dtype=getattr(torch, dtype))
    size = sum(file.stat().st_size for file in copied.iterdir())
    echo(f"{copied}: {size:,} bytes")
