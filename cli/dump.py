"""``bottleneck dump``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .options import (
    device_option,
    dtype_option,
    example,
    hugging_face_options,
    keep_inputs,
    kind_option,
    progress,
    text_options,
)

if TYPE_CHECKING:
    from softmax_bottleneck.logprobs import HuggingFaceOptions


@click.command("dump", epilog=example("bottleneck dump demo/runs/mos --out demo/mos.zarr"))
@click.argument("source")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="STORE.zarr", help="Where it goes.")
@text_options
@kind_option
@dtype_option
@device_option
@hugging_face_options
def command(
    source: str,
    out: Path,
    data: str | None,
    split: str,
    contexts: int | None,
    kind: str,
    dtype: str,
    device: str,
    hugging_face: HuggingFaceOptions,
) -> None:
    """Write the matrix of log-probabilities to a Zarr store, block by block; a killed dump continues."""
    from softmax_bottleneck.logprobs import dump, open_source
    from softmax_bottleneck.machine import resolve_device

    keep_inputs(out, [source], data)
    opened = open_source(
        source,
        data=data,
        split=split,
        contexts=contexts,
        kind=kind,
        dtype=dtype,
        device=resolve_device(device),
        hugging_face=hugging_face,
    )
    dump(opened, out, progress=progress())
    T, M = opened.shape
    click.echo(f"{out}: {T:,} contexts × {M:,} tokens, {opened.dtype}")
