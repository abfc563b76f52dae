"""What draws: singular values, the interactive page, and the papers' figures and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Any

import rich_click as click

from .options import FIGURES, Count, completing, example, memory_option, progress, style_option
from .outputs import echo
from .paths import Figure, Output, ResultFiles, holds_spectra, is_drawn
from .sources import with_source

if TYPE_CHECKING:
    import pandas as pd

    from softmax_bottleneck.sources import Source


def is_spectrum(name: str) -> bool:
    """Return whether a name is that of saved spectra, or of a file that is missing."""
    return name.endswith(".npz") and (not Path(name).exists() or holds_spectra(Path(name)))


@click.command("spectrum", epilog=example("bottleneck spectrum demo/runs/softmax demo/runs/mos --out two.png"))
@with_source(count=-1, device=True, saved=is_spectrum)
@click.option(
    "--out",
    default="spectrum.png",
    type=Figure("a figure", ".png", ".pdf", ".svg", is_own=is_drawn),
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
def spectrum(sources: dict[str, Source | Path], out: Path, part: str, log: bool, style: str, **how: Any) -> None:
    """Draw singular values: their cumulative distribution (Yang et al. 2018, figure 1) beside a log-log plot.

    The log-log plot shows each value, over the largest, against its index, with the tolerance that a rank is counted at
    (in grey, from a tenth to ten times of it) and the bound of the output layer. SOURCE is anything that 'bottleneck
    rank' takes, or the spectra that it saved (.npz).
    """
    import pandas as pd

    from softmax_bottleneck.results.plotting.spectra import save_spectra

    curves = [_curves(source, label, how) for label, source in sources.items()]
    save_spectra(pd.concat(curves), out, part=part, log=log, style=style)
    echo(out, out.with_suffix(".csv"))


def _curves(source: Source | Path, name: str, how: dict[str, Any]) -> pd.DataFrame:
    """Return the rows of one source, or of the saved spectra in one file."""
    import pandas as pd

    from softmax_bottleneck.figures.results import saved_spectra
    from softmax_bottleneck.measure import rank

    if isinstance(source, Path):
        return pd.concat([saved.spectrum.curves(key, saved.limits) for key, saved in saved_spectra(name, source)])
    report = rank(source, progress=progress(), **how)
    return report.spectrum.curves(name, report.limits)


def is_saved(name: str) -> bool:
    """Return whether a name is that of saved results: a .json or .npz file, or a folder of such files."""
    from softmax_bottleneck.core.json_file import json_if_any
    from softmax_bottleneck.sources.kinds import sniff

    path = Path(name)
    is_source = (path / "config.json").exists() or path.suffix == ".zarr" or sniff(path) is not None
    is_spectrum = path.suffix == ".npz" and (path.with_suffix(".json").exists() or holds_spectra(path))
    content = json_if_any(path) if path.suffix == ".json" else {}
    is_answer = isinstance(content, list) or (isinstance(content, dict) and "kind" not in content)
    return (path.is_dir() and not is_source) or not is_answer or is_spectrum


def is_gallery(path: Path) -> bool:
    """Return whether a file is a page that shows all figures and tables."""
    from softmax_bottleneck.figures.output import TITLE

    return path.read_bytes().startswith(TITLE.encode())


@click.command("report", epilog=example("bottleneck report demo/reports --out demo/report.html"))
@with_source(count=-1, device=True, saved=is_saved)
@click.option(
    "--out",
    required=True,
    type=Output("a report", ".html", ".htm", is_own=is_drawn),
    metavar="PAGE.html",
    help="Page to write.",
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
def report(
    sources: dict[str, Source | Path], out: Path, pairs: int, examples: int, reference: str | None, **how: Any
) -> None:
    """Write one self-contained, interactive HTML page about several models.

    SOURCE is anything that 'bottleneck rank' takes; it is measured, and compared with the reference. Saved results
    are not computed again: SOURCE may be a JSON file of 'bottleneck rank', of one source or several, with the
    singular values of '--save-spectrum' in the NAME.npz beside NAME.json; a folder of such files; or the reports of
    'bottleneck demo'. JSON files of 'bottleneck kld' and 'bottleneck compare' add their histogram and their contexts.

    The page shows a verdict for each model, the numbers side by side, singular values with a tolerance that can be
    moved, pairwise KL divergences, the contexts where models disagree most, published numbers, and checks. It
    loads nothing from the network.
    """
    from softmax_bottleneck.report import Contents, measure_sources, read_saved, write_page

    saved = {each: label for label, each in sources.items() if isinstance(each, Path)}
    names = {path: f"/{path.as_posix()}".removesuffix(".npz") for path in saved}
    given = {path: label for path, label in saved.items() if not names[path].endswith(f"/{label}")}
    opened = {label: each for label, each in sources.items() if not isinstance(each, Path)}
    labels = [label for label, each in opened.items() if reference in (label, each.description["path"])]
    if reference is not None and not labels:
        raise click.UsageError(f"--reference {reference} is not among the sources that are measured")
    contents = read_saved(saved, given) if saved else Contents(())
    if opened:
        contents += measure_sources(
            opened,
            pairs=pairs,
            examples=examples,
            reference=labels[0] if labels else None,
            progress=progress(),
            **how,
        )
    write_page(contents, out)
    echo(out)
    echo(*contents.missing, err=True)


@click.command("figures", epilog=example("bottleneck figures spectra --results demo/reports --out demo/figures"))
@click.argument("names", nargs=-1, metavar="[NAME]…", shell_complete=completing(FIGURES))
@click.option("--all", "every", is_flag=True, help="Write every figure and table.")
@click.option("--results", "folder", default="demo/reports", type=ResultFiles(Path), metavar="DIR",
              help="Folder of saved results, with one subfolder for each family of presets.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder for the figures and tables.")
@click.option("--format", "formats", multiple=True, type=click.Choice(["png", "pdf", "svg", "md", "tex", "csv"]),
              help="Format to write; may be given several times.  [default: all]")  # fmt: skip
@style_option
@click.option("--readme", type=Output(), metavar="FILE.md",
              help="Write the tables of a Markdown file, each after its comment <!-- table NAME -->.")  # fmt: skip
@click.option("--gallery", type=Output("a gallery", ".md", is_own=is_gallery), metavar="FILE.md",
              help="Write a page that shows all figures and tables.")  # fmt: skip
def figures(
    names: tuple[str, ...],
    every: bool,
    folder: Path,
    out: Path | None,
    formats: tuple[str, ...],
    style: str,
    readme: Path | None,
    gallery: Path | None,
) -> None:
    """Draw the papers' figures and tables from saved results, with published numbers beside measured ones.

    Nothing is trained or measured. A cell without a result stays empty and is listed at the end. The command
    without arguments ends in an error that lists all names.
    """
    from softmax_bottleneck.figures import REGISTRY, find, output, read

    for name in names:
        find(name)
    if bool(names or every) != (out is not None) or not (out or readme or gallery):
        raise click.UsageError(
            "give figures, by NAME or with --all, and --out, the folder they go to; or --readme or --gallery; NAME is "
            f"one of {', '.join(REGISTRY)}"
        )
    results = read(folder)
    missing: dict[tuple[str, str], None] = {}
    lines: list[object] = []
    if out is not None:
        chosen = list(REGISTRY) if every else list(names)
        drawn = output.draw(chosen, results, out, formats=formats or output.FORMATS, style=style)
        lines += _summary(chosen, drawn.files, out) if every else drawn.files
        missing |= dict.fromkeys(drawn.missing)
    if readme is not None:
        output.update_tables(readme, results)
        lines.append(readme)
    if gallery is not None:
        drawn = output.write_gallery(gallery, results)
        lines.append(f"{gallery}, with {len(drawn.files) - 1} pictures in {gallery.with_suffix('')}")
        missing |= dict.fromkeys(drawn.missing)
    for path in results.unknown:
        echo(f"skipped {path}: no figure or table is made of it", err=True)
    listed = {f"missing in {name}: {text}": None for name, text in missing}
    echo(*(listed if names else _by_family(missing)), err=True)
    echo(*lines)


MEASURE = "measure by 'bottleneck demo --family NAME' or 'bottleneck eval RUN --json FILE'"


def _summary(chosen: Sequence[str], files: Sequence[Path], out: Path) -> list[object]:
    """Return what was drawn, what was not, and where, as a line each."""
    drawn = {file.stem for file in files}
    absent = [name for name in chosen if name not in drawn]
    return [
        f"drawn: {len(drawn)} figures and tables, as {len(files)} files",
        _short(f"not drawn: {', '.join([str(len(absent)), *absent])}"),
        f"in {out}",
    ]


def _by_family(missing: Iterable[tuple[str, str]]) -> list[str]:
    """Return what is missing as one line for each family of presets, or for a figure whose text names no family."""
    lines: dict[str, list[str]] = {}
    others: list[str] = []
    for name, text in missing:
        is_measured = "measured of" in text  # of families; otherwise a command, which is printed whole
        families = dict.fromkeys(re.findall(r"([\w-]+)/[\w-]+", text)) if is_measured else ()
        for family in families:
            lines.setdefault(f"missing of {family}, in ", []).append(name)
        line = f"missing in {name}: {text}"
        others += [] if families else [_short(line)] if is_measured else wrap(line, 80, break_on_hyphens=False)
    listed = [_short(start + ", ".join(names)) for start, names in lines.items()]
    return [*listed, *([MEASURE] if listed else []), *others]


def _short(text: str) -> str:
    return shorten(text, 80, placeholder=" …", break_on_hyphens=False)
