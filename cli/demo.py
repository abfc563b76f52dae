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
    help="Presets whose names begin so: demo, or ptb-small (needs the corpus ptb and hours).",
)
@device_option
def command(out: Path, family: str, device: str) -> None:
    """Train each output layer on real text and measure its rank: the papers on a laptop, no download.

    Writes runs/, reports/ and the singular-value CDF under DIR; a second call continues or only measures.
    """
    from softmax_bottleneck.demo import run
    from softmax_bottleneck.training.fit import resolve_device

    click.echo(run(out, family=family, device=resolve_device(device), progress=progress()))
