"""``bottleneck dump``."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from .options import device_option, example, kind_option, progress, text_options


@click.command("dump", epilog=example("bottleneck dump demo/runs/mos --out demo/mos.zarr"))
@click.argument("source")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="STORE.zarr", help="Where it goes.")
@text_options
@kind_option
@click.option(
    "--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True, help="Of the model."
)
@device_option
def command(
    source: str,
    out: Path,
    data: str | None,
    split: str,
    contexts: int | None,
    kind: str,
    dtype: str,
    device: str,
) -> None:
    """Write the matrix of log-probabilities to a Zarr store, block by block; a killed dump continues."""
    from softmax_bottleneck.logprobs import dump, open_source
    from softmax_bottleneck.training.fit import resolve_device

    opened = open_source(
        source, data=data, split=split, contexts=contexts, kind=kind, dtype=dtype, device=resolve_device(device)
    )
    dump(opened, out, progress=progress())
    T, M = opened.shape
    click.echo(f"{out}: {T:,} contexts × {M:,} tokens, {opened.dtype}")
