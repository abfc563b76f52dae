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
    help="Figure to write; its numbers go to a CSV file of the same name.",
)
@click.option(
    "--max-memory",
    type=Memory(),
    help="Memory limit of each decomposition, such as 8GiB.  [default: 8GiB, or the GPU's free memory]",
)
def command(sources: list[Source | Path], out: Path, max_memory: int | None) -> None:
    """Draw the cumulative distribution of normalized singular values (Yang et al. 2018, figure 1), and write a CSV.

    SOURCE is anything that 'bottleneck rank' takes, or a spectrum that it saved (.npz).
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
