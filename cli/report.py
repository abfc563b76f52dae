"""``bottleneck report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .options import Count, example, memory_option, progress
from .outputs import Output, echo
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source


def is_saved(name: str) -> bool:
    """Return whether a name is that of saved results: a .json or .npz file, or a folder of such files."""
    path = Path(name)
    folder = path.is_dir() and not (path / "config.json").exists() and path.suffix != ".zarr"
    return folder or path.suffix in (".json", ".npz")


@click.command("report", epilog=example("bottleneck report demo/reports --out demo/report.html"))
@with_source(count=-1, device=True, saved=is_saved)
@click.option(
    "--out", required=True, type=Output("a report", ".html", ".htm"), metavar="PAGE.html", help="Page to write."
)
@click.option(
    "--pairs",
    type=Count(2, 1 << 30),
    default=5000,
    help="Pairs of contexts to draw for the histogram of KL divergences.",
)
@click.option("--examples", type=Count(), default=3, help="Number of contexts to show for each model of a comparison.")
@click.option(
    "--reference",
    metavar="SOURCE",
    help="The SOURCE, or its label, whose distance from the others is shown.  [default: the first]",
)
@memory_option
def command(
    sources: dict[str, Source | Path],
    device: str,
    out: Path,
    pairs: int,
    examples: int,
    reference: str | None,
    max_memory: int | None,
) -> None:
    """Write one self-contained, interactive HTML page about several models.

    SOURCE is anything that 'bottleneck rank' takes; it is measured, and compared with the reference. Saved results
    are not computed again: SOURCE may be a JSON file of 'bottleneck rank', of one source or several, with the
    singular values of '--save-spectrum' in the NAME.npz beside NAME.json; a folder of such files; or the reports of
    'bottleneck demo'. JSON files of 'bottleneck kld' and 'bottleneck compare' add their histogram and their contexts.

    The page shows a verdict for each model, the numbers side by side, singular values with a tolerance that can be
    moved, pairwise KL divergences, the contexts where models disagree most, published numbers, and certificates. It
    loads nothing from the network.
    """
    from softmax_bottleneck.report import Contents, measure_sources, read_saved, write_page

    saved = [each for each in sources.values() if isinstance(each, Path)]
    opened = {label: each for label, each in sources.items() if not isinstance(each, Path)}
    labels = [label for label, each in opened.items() if reference in (label, each.description["path"])]
    if reference is not None and not labels:
        raise click.UsageError(f"--reference {reference} is not among the sources that are measured")
    contents = read_saved(saved) if saved else Contents(())
    if opened:
        contents += measure_sources(
            opened,
            pairs=pairs,
            examples=examples,
            reference=labels[0] if labels else None,
            max_memory=max_memory,
            device=device,
            progress=progress(),
        )
    write_page(contents, out)
    echo(out)
    for text in contents.missing:
        echo(f"not on the page: {text}", err=True)
