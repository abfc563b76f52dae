"""``bottleneck spectrum``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .options import (
    Memory,
    check_outputs,
    device_option,
    dtype_option,
    example,
    hugging_face_options,
    kind_option,
    progress,
    text_options,
)

if TYPE_CHECKING:
    from softmax_bottleneck.logprobs import HuggingFaceOptions


@click.command("spectrum", epilog=example("bottleneck spectrum demo/runs/softmax demo/runs/mos --out demo/two.png"))
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE…")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FIGURE.(png|pdf|svg)")
@text_options
@kind_option
@dtype_option
@click.option("--max-memory", type=Memory(), default="8GiB", show_default=True, help="For the decomposition.")
@device_option
@hugging_face_options
def command(
    sources: tuple[str, ...],
    out: Path,
    data: str | None,
    split: str,
    contexts: int | None,
    kind: str,
    dtype: str,
    max_memory: int,
    device: str,
    hugging_face: HuggingFaceOptions,
) -> None:
    """Draw normalized singular-value CDFs (MoS paper, figure 1), with the numbers as a CSV file beside it.

    SOURCE is what 'bottleneck rank' takes, or a spectrum it saved (.npz).
    """
    from softmax_bottleneck.figures import mos_figure_1
    from softmax_bottleneck.logprobs import rank
    from softmax_bottleneck.machine import resolve_device
    from softmax_bottleneck.plotting import check_format
    from softmax_bottleneck.spectrum import load_spectrum

    check_format(out)
    check_outputs(out, out.with_suffix(".csv"), sources=sources, data=data)
    spectra = {}
    for source in sources:
        if source.endswith(".npz"):
            spectra[source] = load_spectrum(Path(source))[0]
            continue
        report = rank(
            source,
            data=data,
            split=split,
            contexts=contexts,
            kind=kind,
            dtype=dtype,
            max_memory=max_memory,
            device=resolve_device(device),
            progress=progress(),
            hugging_face=hugging_face,
        )
        spectra[source] = report.spectrum
    mos_figure_1.save(spectra, out)
    click.echo(f"{out}\n{out.with_suffix('.csv')}")
