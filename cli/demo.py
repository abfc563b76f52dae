"""``bottleneck demo``."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from .options import device_option, example, progress


@click.command("demo", epilog=example("bottleneck demo --out demo"))
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo"), show_default=True, metavar="DIR")
@click.option(
    "--family",
    default="demo",
    show_default=True,
    metavar="PRESETS",
    help="The family of presets: demo, or ptb-small, -awd or -nt-asgd (which need the corpus ptb and hours).",
)
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Runs of each preset.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting of every preset.")
@click.option(
    "--initial",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Start each run from the one of its name and seed in DIR, the runs/ of another demo.",
)
@click.option("--contexts", type=click.IntRange(min=1), metavar="N", help="Measure only the first N contexts.")
@click.option(
    "--adaptive", is_flag=True, help="Score seed 0 by dynamic evaluation, slow as training, and with a cache."
)
@click.option("--reports", type=click.Path(path_type=Path), metavar="DIR", help="Only print the table of kept reports.")
@device_option
def command(
    out: Path,
    family: str,
    seeds: int,
    settings: tuple[str, ...],
    initial: Path | None,
    contexts: int | None,
    adaptive: bool,
    reports: Path | None,
    device: str,
) -> None:
    """Train each output layer on real text and measure its rank: the papers on a laptop, no download.

    Writes runs/, reports/ and the singular-value CDF under DIR; a second call continues or only measures.
    """
    if reports is not None:
        from softmax_bottleneck.demo_table import read, table

        click.echo(table(read(reports)))
        return
    from softmax_bottleneck.demo import Study, run
    from softmax_bottleneck.machine import resolve_device

    study = Study(family=family, seeds=seeds, settings=settings, initial=initial, contexts=contexts, adaptive=adaptive)
    click.echo(run(out, study, device=resolve_device(device), progress=progress()))
