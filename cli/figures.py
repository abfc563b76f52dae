"""``bottleneck figures``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import rich_click as click

from .completion import FIGURES, completing
from .options import example, style_option
from .outputs import Output, echo, keep_inputs


@click.command("figures", epilog=example("bottleneck figures spectra --results demo/reports --out demo/figures"))
@click.argument("names", nargs=-1, metavar="[NAME]…", shell_complete=completing(FIGURES))
@click.option("--all", "every", is_flag=True, help="Write every figure and table.")
@click.option("--results", "folder", default="demo/reports", type=click.Path(path_type=Path),
              metavar="DIR",
              help="Folder of saved results, with one subfolder for each family of presets.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder for the figures and tables.")
@click.option("--format", "formats", multiple=True, type=click.Choice(["png", "pdf", "svg", "md", "tex", "csv"]),
              help="Format to write; may be given several times.  [default: all]")  # fmt: skip
@style_option
@click.option("--readme", type=click.Path(path_type=Path), metavar="FILE.md",
              help="Update the tables of a Markdown file, each after its comment <!-- table NAME -->.")  # fmt: skip
@click.option("--gallery", type=Output(), metavar="FILE.md",
              help="Write a page that shows all figures and tables.")  # fmt: skip
def command(
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

    Nothing is trained or measured. A cell without a result stays empty and is listed at the end. The error for an
    unknown NAME lists the nearest names.
    """
    from softmax_bottleneck.figures import REGISTRY, find, output, read

    for name in names:
        find(name)
    if bool(names or every) != (out is not None) or not (out or readme or gallery):
        raise click.UsageError(
            "give figures, by NAME or with --all, and --out, the folder they go to; or --readme or --gallery"
        )
    if gallery is not None:
        keep_inputs(gallery, [folder])
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
    for name, text in missing:
        for family in dict.fromkeys(re.findall(r"([\w-]+)/[\w-]+", text)):
            lines.setdefault(f"missing of {family}, in ", []).append(name)
        if "/" not in text:
            lines[f"missing in {name}: "] = [text]
    return [_short(start + ", ".join(names)) for start, names in lines.items()]


def _short(text: str) -> str:
    return textwrap.shorten(text, 80, placeholder=" …", break_on_hyphens=False)
