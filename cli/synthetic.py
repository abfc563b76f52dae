"""``bottleneck synthetic``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from softmax_bottleneck.core.version import __version__

from .options import (
    NAMES,
    NUMBERS,
    WHOLE,
    Count,
    device_option,
    example,
    json_option,
    listed,
    memory,
    progress,
    refused,
)
from .outputs import emit
from .paths import Folder

if TYPE_CHECKING:
    from softmax_bottleneck.synthetic import Cell, CellResult


@click.command("synthetic", epilog=example("bottleneck synthetic --vocab 20 --dim 2,5 --models mos --contexts 50"))
@click.option("--preset", "preset_name", metavar="paper-fig2|paper-fig3|paper-fig6|paper-fig7|paper-fig8",
              help="Grid of a figure of Ganea et al. (2019); the options below replace parts of it.")  # fmt: skip
@listed("--alpha", "alphas", NUMBERS, metavar="α,…",
        help="Dirichlet concentrations.  [default: 0.1, or the preset's]")  # fmt: skip
@listed("--vocab", "vocabs", WHOLE, metavar="M,…", help="Vocabulary sizes.  [default: 100]")
@listed("--dim", "dims", WHOLE, metavar="D,…", help="Embedding sizes.  [default: 2,5,10,20]")
@click.option("--contexts", type=int, metavar="N", help="Number of distributions.  [default: 500]")
@listed("--models", "models", NAMES, metavar="NAME,…",
        help="Any of softmax, mos, lms (lms-net), lms-plif, sigsoftmax.  [default: softmax,mos,lms]")  # fmt: skip
@click.option("--seeds", type=int, metavar="N", help="Number of fits of each cell.  [default: 2]")
@click.option(
    "--cycles", type=int, default=3,
    help="Largest number of cycles of Adam; each is twice as long as the last: 40 epochs, 80, …"
)  # fmt: skip
@click.option("--rounds", type=int, default=7,
              help="Largest number of rounds of L-BFGS after Adam: 50 steps, 100, …; 0 for none.")  # fmt: skip
@click.option("--out", type=Folder("cells"), default=Path("synthetic"), metavar="DIR",
              help="Folder of cells and figures.")  # fmt: skip
@click.option("--max-memory", type=memory, metavar="SIZE", default="2GiB",
              help="Memory for the distributions P* of a cell; larger ones are drawn again in every pass.")  # fmt: skip
@click.option("--processes", type=Count(), metavar="N",
              help="Number of cells fitted at a time.  [default: as many as fit in memory]")  # fmt: skip
@click.option("--launcher", type=click.Choice(["local", "slurm"]), default="local",
              help="Fit the cells on this machine, or submit them to Slurm.")  # fmt: skip
@click.option("--slurm", multiple=True, metavar="KEY=VALUE",
              help="Parameter for submitit, such as slurm_partition=gpu or timeout_min=60.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only list the cells, and say which are finished.")
@device_option
@json_option
def command(preset_name: str | None, launcher: str, dry_run: bool, json_to: Path | None, **options: Any) -> None:
    """Fit output layers to random distributions; measure matched modes and KL divergence (Ganea et al. 2019, §5.1).

    Finished cells are kept in DIR/cells, so an interrupted grid continues and a larger grid reuses them. Each alpha has
    its figures, DIR/mode-matching-alpha-0.1 and DIR/kl-alpha-0.1, as PNG, PDF, SVG and CSV; a single fit has only CSV.
    """
    if options["slurm"] and launcher != "slurm":
        raise click.UsageError("--slurm goes with --launcher slurm")
    parts = {name: options.pop(name) for name in ("alphas", "vocabs", "dims", "models", "contexts", "seeds")}
    cells = _cells(preset_name, {name: options.pop(name) for name in ("cycles", "rounds")}, **parts)
    action = _list if dry_run else _submit if launcher == "slurm" else _fit
    emit(*action(cells, options.pop("out"), **options), json_to)


def _cells(preset_name: str | None, length: dict[str, int], **parts: Any) -> list[Cell]:
    """Return the cells of a preset, with the parts that are given in place of its own."""
    from softmax_bottleneck.synthetic import FitConfig, grid, preset

    parts = {name: value for name, value in parts.items() if value is not None}
    return refused(lambda parts: grid(**{**preset(preset_name), **parts}, fit=FitConfig(**length)), parts)


def _fit(
    cells: list[Cell], out: Path, *, device: str, max_memory: int, processes: int | None, **_: Any
) -> tuple[CellResult, str]:
    from softmax_bottleneck.core.devices import resolve_device
    from softmax_bottleneck.figures.lms_synthetic import save_figures
    from softmax_bottleneck.synthetic import run_grid, table

    how: dict[str, Any] = {"device": resolve_device(device), "max_memory": max_memory, "processes": processes}
    results = run_grid(cells, out / "cells", progress=progress(), **how)
    files = save_figures(results, out)
    alphas = list(dict.fromkeys(cell.alpha for cell in cells))
    alpha = alphas[0] if len(alphas) == 1 else alphas
    about = {"kind": "synthetic", "alpha": alpha, "contexts": cells[0].contexts}
    return {**about, "cells": results, "version": __version__}, "\n".join([table(results), *map(str, files)])


def _submit(
    cells: list[Cell], out: Path, *, device: str, max_memory: int, slurm: Sequence[str], **_: Any
) -> tuple[CellResult, str]:
    from softmax_bottleneck.synthetic import submit

    how: dict[str, Any] = {"device": device, "max_memory": max_memory, "parameters": _parameters(slurm)}
    jobs = submit(cells, out.absolute() / "cells", progress=progress(), **how)
    return {
        "kind": "synthetic-jobs",
        "jobs": jobs,
    }, f"{len(jobs)} jobs submitted; when they are done, the same command prints the table"


def _list(cells: list[Cell], out: Path, *, max_memory: int, **_: Any) -> tuple[CellResult, str]:
    from softmax_bottleneck.synthetic.grid import finished
    from softmax_bottleneck.synthetic.grid import memory as memory_of

    done = finished(cells, out / "cells")
    rows = [{"file": str(out / "cells" / f"{cell.name}.json"), "done": cell in done} for cell in cells]
    lines = []
    for cell, row in zip(cells, rows, strict=True):
        size = memory_of(cell, max_memory=max_memory) / 2**30
        lines.append(f"{'done' if row['done'] else 'to do'}  {size:5.1f} GiB  {row['file']}")
    missing = sum(not row["done"] for row in rows)
    return {"kind": "synthetic-plan", "cells": rows}, "\n".join([*lines, f"{len(rows)} cells, {missing} to do"])


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
