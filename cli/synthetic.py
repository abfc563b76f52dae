"""``bottleneck synthetic``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from softmax_bottleneck._version import __version__

from .options import Memory, check_outputs, device_option, emit, example, json_option, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from softmax_bottleneck.synthetic import Cell, Result


class Numbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers separated by commas."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Read ``2,10,50``."""
        try:
            return tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of whole numbers; write it as 2,10,50", param, ctx)


@click.command(
    "synthetic", epilog=example("bottleneck synthetic --alpha 0.1 --vocab 20 --dim 2 --models softmax --contexts 50")
)
@click.option("--preset", "preset_name", metavar="paper-fig2|paper-fig3|paper-fig6|paper-fig7|paper-fig8",
              help="Grid of a figure of Ganea et al. (2019); the options below replace parts of it.")  # fmt: skip
@click.option("--alpha", type=float, help="Dirichlet concentration.  [default: 0.1, or the preset's]")
@click.option("--vocab", type=Numbers(), metavar="M,…", help="Vocabulary sizes.  [default: 100]")
@click.option("--dim", type=Numbers(), metavar="D,…", help="Embedding sizes.  [default: 2,5,10,20]")
@click.option("--contexts", type=int, metavar="N", help="Number of distributions.  [default: 500]")
@click.option("--models", metavar="NAME,…", help="Any of softmax, mos, lms, lms-plif, sigsoftmax.  [default: first 3]")
@click.option("--seeds", type=int, metavar="N", help="Number of fits of each cell.  [default: 2]")
@click.option(
    "--cycles", type=int, default=5, show_default=True,
    help="Largest number of cycles of a fit; each is twice as long as the last: 40 epochs, 80, …"
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=Path("synthetic"), show_default=True, metavar="DIR",
              help="Folder of cells and figures.")  # fmt: skip
@click.option("--max-memory", type=Memory(), default="2GiB", show_default=True,
              help="Memory for the distributions P* of a cell; larger ones are drawn anew in every pass.")  # fmt: skip
@click.option("--processes", type=click.IntRange(min=1), metavar="N",
              help="Number of cells fitted at a time.  [default: as many as fit in memory]")  # fmt: skip
@click.option("--launcher", type=click.Choice(["local", "slurm"]), default="local", show_default=True,
              help="Fit the cells on this machine, or submit them to Slurm.")  # fmt: skip
@click.option("--slurm", "settings", multiple=True, metavar="KEY=VALUE",
              help="Parameter for submitit, such as slurm_partition=gpu or timeout_min=60.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only list the cells, and say which are finished.")
@click.option("--profile", "profiled", is_flag=True, help="Only time one pass of each model, at the smallest sizes.")
@device_option
@json_option
def command(
    preset_name: str | None,
    alpha: float | None,
    vocab: tuple[int, ...] | None,
    dim: tuple[int, ...] | None,
    contexts: int | None,
    models: str | None,
    seeds: int | None,
    cycles: int,
    out: Path,
    max_memory: int,
    processes: int | None,
    launcher: str,
    settings: tuple[str, ...],
    dry_run: bool,
    profiled: bool,
    device: str,
    json_to: Path | None,
) -> None:
    """Fit output layers to random distributions; measure matched modes and KL divergence (Ganea et al. 2019, §5.1).

    Finished cells are kept in DIR/cells, so an interrupted grid continues and a larger grid reuses them. The figures
    are DIR/mode-matching.png and DIR/kl.png.
    """
    from softmax_bottleneck import synthetic
    from softmax_bottleneck.figures import lms_synthetic
    from softmax_bottleneck.machine import resolve_device

    check_outputs(json_to)
    chosen = synthetic.preset(preset_name)
    alpha = chosen.alpha if alpha is None else alpha
    cells = synthetic.grid(
        chosen.models if models is None else models.split(","),
        [alpha],
        chosen.vocabs if vocab is None else vocab,
        chosen.dims if dim is None else dim,
        chosen.seeds if seeds is None else seeds,
        contexts=chosen.contexts if contexts is None else contexts,
        fit=synthetic.FitConfig(cycles=cycles),
    )
    folder = out / "cells"
    if dry_run:
        emit(_listed(cells, folder), "\n".join(_lines(cells, folder, max_memory)), json_to)
    elif profiled:
        found = synthetic.profile(
            cells[0].blocks(resolve_device(device)), dim=cells[0].dim, models=_models(cells), max_memory=max_memory
        )
        emit(found, _profile_text(found), json_to)
    elif launcher == "slurm":
        jobs = synthetic.submit(
            cells,
            folder.absolute(),
            device=device,
            max_memory=max_memory,
            parameters=_parameters(settings),
            progress=progress(),
        )
        emit(
            {"jobs": jobs},
            f"{len(jobs)} jobs submitted; when they are done, the same command prints the table",
            json_to,
        )
    else:
        results = synthetic.run_grid(
            cells,
            folder,
            device=resolve_device(device),
            max_memory=max_memory,
            processes=processes,
            progress=progress(),
        )
        figures = lms_synthetic.save_both(results, out)
        values = {"alpha": alpha, "contexts": cells[0].contexts, "cells": results, "version": __version__}
        emit(values, "\n".join([synthetic.table(results), *map(str, figures)]), json_to)


def _models(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(cell.model for cell in cells))


def _listed(cells: Sequence[Cell], folder: Path) -> Result:
    from softmax_bottleneck.synthetic.grid import finished

    there = finished(cells, folder, progress())
    return {"cells": [{"file": str(folder / f"{cell.name}.json"), "done": cell in there} for cell in cells]}


def _lines(cells: Sequence[Cell], folder: Path, max_memory: int) -> list[str]:
    from softmax_bottleneck.synthetic.grid import memory

    rows = [
        f"{'done' if row['done'] else 'to do'}  {memory(cell, max_memory=max_memory) / 2**30:5.1f} GiB  {row['file']}"
        for cell, row in zip(cells, _listed(cells, folder)["cells"], strict=True)
    ]
    return [*rows, f"{len(cells)} cells, {sum(row.startswith('to do') for row in rows)} to do"]


def _parameters(settings: Sequence[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{setting!r} has no '='; write it as timeout_min=60", param_hint="--slurm")
        try:
            parameters[key] = json.loads(value)
        except ValueError:
            parameters[key] = value
    return parameters


def _profile_text(found: Result) -> str:
    sampled = f"{found['sample']:.3f} s to sample it" + (" once, then kept" if found["cached"] else " anew every pass")
    return "\n".join(
        [
            f"P* of {found['contexts']:,} contexts over {found['vocab']:,} tokens: {sampled}",
            f"three products with D = {found['dim']} and one exp: {found['bare']:.3f} s, {found['threads']} threads",
            *(
                f"{name:>10} pass {seconds:7.3f} s  {found['over_bare'][name]:6.2f} times the bare arithmetic"
                f"  {found['over_softmax'][name]:6.2f} times softmax"
                for name, seconds in found["passes"].items()
            ),
        ]
    )
