"""``bottleneck demo``."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from softmax_bottleneck.errors import ConfigurationError

from .options import NAMES, Count, device_option, example, listed, memory_option, progress
from .outputs import aligned, echo_text
from .paths import Folder, Input, ResultFiles

if TYPE_CHECKING:
    from softmax_bottleneck.figures.results import SavedResults


@click.command("demo", epilog=example("bottleneck demo --out demo"))
@click.option("--out", type=Folder("runs", "reports"), default=Path("demo"), metavar="DIR",
              help="Folder of all results.")  # fmt: skip
@click.option("--family", default="demo", metavar="PRESETS",
              help="Family of presets to train, such as demo or ptb-small; 'bottleneck presets' says what each needs, "
              "most of them hours and a corpus.",
)  # fmt: skip
@listed("--models", "models", NAMES, metavar="NAME,…",
        help="Models of the family to train, such as softmax,mos.  [default: all]")  # fmt: skip
@click.option("--seeds", type=Count(), default=1, help="Runs of each preset.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one setting of every preset.")
@click.option("--initial", type=Input(Path), metavar="DIR",
              help="Start each run from the run of the same name and seed in DIR, the folder runs/ of another demo.",
)  # fmt: skip
@click.option("--contexts", type=Count(), metavar="N", help="Measure only the first N contexts.")
@click.option("--adaptive", is_flag=True,
              help="Also evaluate seed 0 by dynamic evaluation, as slow as training, and a cache.")  # fmt: skip
@click.option("--reports", type=ResultFiles(Path), metavar="DIR",
              help="Only print the table of reports in DIR.")  # fmt: skip
@memory_option
@device_option
def command(out: Path, models: tuple[str, ...] | None, reports: Path | None, device: str, **options: Any) -> None:
    """Train output layers on real text and measure their ranks, on a laptop and without a download.

    Runs, reports and a figure of the singular values go to DIR. The same command continues an interrupted demo;
    finished runs are only measured again.
    """
    from softmax_bottleneck.figures.results import read

    if reports is not None:
        if others := [name for name in ("settings", "initial", "contexts", "adaptive", "max_memory") if options[name]]:
            option = others[0].replace("settings", "set").replace("_", "-")
            raise click.UsageError(f"--reports only prints a table: leave out --{option}")
        results = read(reports)
        if results.unknown:
            raise ConfigurationError(f"{results.unknown[0]} is not a result; name a folder of the demo's reports")
        echo_text(_shown(results))
        return
    from softmax_bottleneck.core.devices import resolve_device

    from .demo_runs import Study, run

    study = Study(models=models or (), **options)
    files = run(out, study, device=resolve_device(device), progress=progress())
    echo_text(_shown(read(out / "reports", files)))
    program, here = _program(), shlex.quote(str(out))
    name = next(iter(sorted(path.name for path in (out / "runs").iterdir())))
    echo_text(
        "\nA rank of A to B (N) means: N singular values exceed the tolerance, A exceed ten times it, and B exceed a "
        "tenth of it."
        f"\nWritten to {out}: runs (trained models), reports (JSON and singular values), cdf.png, .pdf, .svg and .csv."
        f"\nNext:\n  {program} rank {here}/runs/{name}"
        f"\n  {program} report {here}/reports --out {here}/report.html"
        f"\n  {program} spectrum YOUR_MODEL --data YOUR_TEXT.txt --out yours.png"
        f"\n  {program} spectrum YOUR_LOGITS.npy --kind logits --out yours.pdf"
        "\n  (YOUR_MODEL: the folder or the name of a Hugging Face model)",
        err=not sys.stdout.isatty(),
    )


def _shown(results: SavedResults) -> str:
    """Return the verdict of each model, of its first seed, and the table of all."""
    from softmax_bottleneck.figures.demo_table import table

    verdicts = [(each.model, str(each.report["verdict"])) for each in results.of("demo") if not each.seed]
    return "\n\n".join([*([aligned(verdicts)] if verdicts else []), table(results.frame)])


def _program() -> str:
    """Return the command's name, or its path if the shell would not find it by its name."""
    called = Path(sys.argv[0])
    return shlex.quote(str(called)) if called.name == "bottleneck" and not shutil.which("bottleneck") else "bottleneck"
