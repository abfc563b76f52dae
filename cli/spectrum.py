"""``bottleneck spectrum``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .options import Figure, Memory, example, progress
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source


@click.command("spectrum", epilog=example("bottleneck spectrum demo/runs/softmax demo/runs/mos --out demo/two.png"))
@with_source(count=-1)
@click.option(
    "--out",
    required=True,
    type=Figure(),
    metavar="FIGURE.(png|pdf|svg)",
    help="The figure to write; the numbers go to a CSV file of the same name.",
)
@click.option(
    "--max-memory",
    type=Memory(),
    help="Memory each decomposition may take, such as 8GiB.  [default: 8GiB, or what the GPU has free]",
)
def command(sources: list[Source | Path], out: Path, max_memory: int | None) -> None:
    """Draw normalized singular-value CDFs (MoS paper, figure 1), with the numbers as a CSV file beside it.

    SOURCE is what 'bottleneck rank' takes, or a spectrum it saved (.npz).
    """
    from softmax_bottleneck.figures import mos_figure_1
    from softmax_bottleneck.measure import rank
    from softmax_bottleneck.spectrum import load_spectrum

    spectra = {str(each): load_spectrum(each)[0] for each in sources if isinstance(each, Path)}
    for each in sources:
        if not isinstance(each, Path):
            spectra[str(each.description["path"])] = rank(each, max_memory=max_memory, progress=progress()).spectrum
    mos_figure_1.save(spectra, out)
    click.echo(f"{out}\n{out.with_suffix('.csv')}")
