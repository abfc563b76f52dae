"""``bottleneck figures``."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from .options import example


@click.command("figures", epilog=example("bottleneck figures spectra demo --results demo/reports --out demo/figures"))
@click.argument("names", nargs=-1, metavar="[NAME]…")
@click.option("--all", "every", is_flag=True, help="Every figure and table there is.")
@click.option(
    "--results",
    "folder",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Saved results, in folders named after families of presets.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Where NAME.png and the others go.")
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(["png", "pdf", "svg", "md", "tex", "csv"]),
    help="Formats to write; give it once for each.  [default: all]",
)
@click.option(
    "--style",
    type=click.Choice(["screen", "iclr", "icml", "icml-wide", "neurips"]),
    default="screen",
    show_default=True,
    help="Type and width of a venue.",
)
@click.option(
    "--readme",
    type=click.Path(path_type=Path),
    metavar="FILE.md",
    help="Make the tables in a Markdown file anew, each after <!-- table NAME -->.",
)
@click.option(
    "--gallery", type=click.Path(path_type=Path), metavar="FILE.md", help="Write a page that shows all of them."
)
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
    """Draw figures and write tables of the papers from saved results, published numbers beside measured ones.

    Nothing is trained or measured. What has no result yet stays empty and is listed at the end. An unknown NAME is
    answered with the known ones.
    """
    if bool(names or every) != (out is not None):
        raise click.UsageError("give figures, by NAME or with --all, and --out, the folder they go to")
    if not (out or readme or gallery):
        raise click.UsageError("give NAME or --all with --out, or --readme, or --gallery")
    from softmax_bottleneck.figures import REGISTRY, output, read

    results = read(folder)
    missing: dict[tuple[str, str], None] = {}
    if out is not None:
        chosen = list(REGISTRY) if every else list(names)
        drawn = output.draw(chosen, results, out, formats=formats or output.FORMATS, style=style)
        click.echo("\n".join(map(str, drawn.files)))
        missing |= dict.fromkeys(drawn.missing)
    if readme is not None:
        output.update_tables(readme, results)
        click.echo(readme)
    if gallery is not None:
        drawn = output.write_gallery(gallery, results)
        click.echo("\n".join(map(str, drawn.files)))
        missing |= dict.fromkeys(drawn.missing)
    for path in results.unknown:
        click.echo(f"not read, no result known here: {path}", err=True)
    for name, text in missing:
        click.echo(f"missing in {name}: {text}", err=True)
