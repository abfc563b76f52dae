"""``bottleneck spectrum``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .options import example, memory_option, progress, style_option
from .outputs import Figure, echo
from .sources import is_spectrum, with_source

if TYPE_CHECKING:
    import pandas as pd

    from softmax_bottleneck.sources import Source


@click.command("spectrum", epilog=example("bottleneck spectrum demo/runs/softmax demo/runs/mos --out two.png"))
@with_source(count=-1, device=True, saved=is_spectrum)
@click.option(
    "--out",
    required=True,
    type=Figure("a figure", ".png", ".pdf", ".svg"),
    metavar="FIGURE.(png|pdf|svg)",
    help="Figure to write; its numbers go to a CSV file of the same name.",
)
@click.option(
    "--part",
    type=click.Choice(["raw", "row-centred", "both"]),
    default="both",
    help="Matrix whose singular values are drawn: as it is, or with each row's mean subtracted.",
)
@click.option("--log", is_flag=True, help="Draw only the singular values against their index, on logarithmic axes.")
@style_option
@memory_option
def command(
    sources: dict[str, Source | Path], device: str, out: Path, part: str, log: bool, style: str, max_memory: int | None
) -> None:
    """Draw singular values: their cumulative distribution (Yang et al. 2018, figure 1) beside a log-log plot.

    The log-log plot shows each value, over the largest, against its index, with the tolerance that a rank is counted at
    (in grey, from a tenth to ten times of it) and the bound of the output layer. SOURCE is anything that 'bottleneck
    rank' takes, or a spectrum that it saved (.npz).
    """
    import pandas as pd

    from softmax_bottleneck.results.plotting.spectra import save_spectra

    curves = [_curves(source, label, max_memory, device) for label, source in sources.items()]
    save_spectra(pd.concat(curves), out, part=part, log=log, style=style)
    echo(out, out.with_suffix(".csv"))


def _curves(source: Source | Path, name: str, max_memory: int | None, device: str) -> pd.DataFrame:
    """Return the rows of one source, or of one saved spectrum."""
    from softmax_bottleneck.measure import rank
    from softmax_bottleneck.spectrum import load_spectrum

    if isinstance(source, Path):
        saved = load_spectrum(source)
        return saved.spectrum.curves(name, saved.limits)
    report = rank(source, max_memory=max_memory, device=device, progress=progress())
    return report.spectrum.curves(name, report.limits)
