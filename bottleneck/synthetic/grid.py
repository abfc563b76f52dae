"""A grid of cells on one machine, in parallel processes. Saved results of finished cells are used again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import torch

from ..core.devices import resolve_device, threads
from ..core.files import make_folder
from ..core.interruption import note_if_interrupted
from ..core.machine import cores, duration, free_memory
from ..core.progress import SILENT, Progress
from ..core.workers import run_in_workers
from ..errors import ConfigurationError, look_up
from .cells import Cell, CellResult, read, run, write
from .dirichlet import BLOCK_ENTRIES, DEFAULT_MEMORY, DirichletBlocks, Targets
from .fit import FitConfig
from .lbfgs import HISTORY, Problem
from .metrics import SAMPLE
from .models import build

MOST_CELLS = 1_000_000
"""Largest number of cells of a grid."""
PROCESS_BYTES = 600 << 20
"""Memory of a worker process before its first cell: Python, torch and its libraries."""
BLOCK_COPIES = 24
"""Peak memory in float32 blocks, that of the float64 evaluation of a mixture."""
PARAMETER_COPIES = 2 * (8 + 2 * HISTORY)
"""Float32 copies of each parameter: in float64 the value, gradient, step and start of L-BFGS, and what it keeps."""
TYPICAL_PASSES = 2500
"""Passes over the contexts of a fit, the mean of the default grid, with what L-BFGS takes beside them."""
TIMED_CONTEXTS = 512
"""Largest number of contexts in the pass that is timed."""
SAMPLE_COPIES, EMBEDDING_COPIES = 5, 6
"""Float64 copies of log P* and log Q that `metrics.matrices` needs, and of the embeddings in `metrics.reachable`."""
COMPARED = ("softmax", "mos", "lms")
"""The models that Ganea et al. 2019 compare."""
DEFAULT: dict[str, Any] = {
    "models": COMPARED, "alphas": (0.1,), "vocabs": (100,), "dims": (2, 5, 10, 20), "contexts": 500, "seeds": 2
}  # fmt: skip
"""A grid that takes two minutes on two cores."""
_PAPER = {**DEFAULT, "vocabs": (100, 1000, 10_000), "dims": (2, 5, 10, 20, 50, 100), "contexts": 100_000, "seeds": 3}
PRESETS: dict[str, dict[str, Any]] = {
    "paper-fig2": {**_PAPER, "alphas": (0.1,)},  # mode matching
    "paper-fig3": {**_PAPER, "alphas": (0.1,)},  # KL(P* ‖ Q) of the same cells
    "paper-fig6": {**_PAPER, "alphas": (0.01,)},  # mode matching
    "paper-fig7": {**_PAPER, "alphas": (0.01,)},  # KL(P* ‖ Q) of the same cells
    "paper-fig8": {**_PAPER, "alphas": (1.0,)},  # mode matching
}
"""The grids of the figures of Ganea et al. 2019, as arguments of `grid`; a fit takes between 1,000 and
7,000 passes.

The paper states the models, the concentrations and N = 10⁵ contexts in its text; the vocabularies and dimensions stand
only in its figures, and those here are this library's choice. N = 10⁵ needs a GPU; on two processor cores take
``--contexts 1000``.
"""


def preset(name: str | None) -> dict[str, Any]:
    """Return the arguments of a preset, or for ``None`` those of the default grid of ``bottleneck synthetic``.

    Raises:
        ConfigurationError: for an unknown name.
    """
    return DEFAULT if name is None else look_up("preset", name, PRESETS)


def grid(
    models: Iterable[str],
    alphas: Iterable[float],
    vocabs: Iterable[int],
    dims: Iterable[int],
    seeds: int,
    *,
    contexts: int,
    fit: FitConfig | None = None,
) -> list[Cell]:
    """Return every combination as a cell, those of the smallest M · D first.

    Raises:
        ConfigurationError: for a grid without cells or with more than `MOST_CELLS`, or a cell that cannot be run.
    """
    models, alphas, vocabs, dims = [*models], [*alphas], [*vocabs], [*dims]
    count = len(models) * len(alphas) * len(vocabs) * len(dims) * max(0, seeds)
    if not count:
        raise ConfigurationError(
            "the grid is empty: name at least one model, alpha, vocabulary and dimension, one seed"
        )
    if count > MOST_CELLS:
        raise ConfigurationError(f"the grid has {count:,} cells, more than {MOST_CELLS:,}: give fewer seeds or sizes")
    config = fit or FitConfig()
    cells = [
        Cell(model=model, alpha=alpha, vocab=vocab, dim=dim, contexts=contexts, seed=seed, fit=config)
        for vocab, dim, alpha, model, seed in product(vocabs, dims, alphas, models, range(seeds))
    ]
    return sorted(dict.fromkeys(cells), key=lambda cell: cell.vocab * cell.dim)


def memory(cell: Cell, *, max_memory: int = DEFAULT_MEMORY) -> int:
    """Return an estimate of the bytes that a process needs to run this cell."""
    entries = cell.contexts * cell.vocab
    cached = 4 * entries if 4 * entries <= max_memory else 0
    blocks = BLOCK_COPIES * 4 * max(BLOCK_ENTRIES, cell.vocab)
    parameters = 4 * cell.dim * (PARAMETER_COPIES * (cell.contexts + cell.vocab) + 4 * cell.contexts * cell.dim)
    sample = 8 * cell.vocab * (SAMPLE_COPIES * min(SAMPLE, cell.contexts) + EMBEDDING_COPIES * cell.dim)
    return PROCESS_BYTES + cached + parameters + max(blocks, sample)


def seconds(cell: Cell, device: str = "cpu", *, count: int = 1) -> float:
    """Return an estimate of the time of a cell's fit on so many threads, from one timed pass of its model and size."""
    return cell.contexts * TYPICAL_PASSES * _seconds_per_context(cell.model, cell.vocab, cell.dim, device, count)


@cache
def _seconds_per_context(model: str, vocab: int, dim: int, device: str, count: int) -> float:
    blocks = DirichletBlocks(max(1, min(TIMED_CONTEXTS, BLOCK_ENTRIES // vocab)), vocab, alpha=1.0, device=device)
    head = build(model, vocab=vocab, dim=dim, seed=0, device=device)
    problem = Problem(head, torch.zeros(blocks.contexts, dim, device=device), Targets(blocks))
    problem.convert(torch.float32)
    with threads(count):
        problem.divergence()  # which compiles loops and warms the caches
        started = time.perf_counter()
        problem.divergence()
        return (time.perf_counter() - started) / blocks.contexts


def check_memory(cell: Cell, *, max_memory: int = DEFAULT_MEMORY) -> None:
    """Refuse a cell that needs more memory than this machine has."""
    needed, total = memory(cell, max_memory=max_memory), psutil.virtual_memory().total
    if needed > total:
        raise ConfigurationError(
            f"{cell.contexts:,} contexts, {cell.vocab:,} tokens and embeddings of size {cell.dim:,} need about "
            f"{needed / 2**30:,.0f} GiB, and this machine has {total / 2**30:,.0f}: give smaller numbers"
        )


def run_grid(
    cells: Sequence[Cell],
    folder: Path,
    *,
    device: str = "cpu",
    max_memory: int = DEFAULT_MEMORY,
    processes: int | None = None,
    progress: Progress = SILENT,
) -> list[CellResult]:
    """Run the cells that have no result in ``folder`` yet; return the results of all cells, in their order.

    Args:
        cells: cells to run; the result of a fit that diverges says so.
        folder: folder of the results' files, created if it does not exist.
        device: device of the fits; on a GPU they run one after another.
        max_memory: largest size of P*, in bytes, that a cell keeps in memory.
        processes: largest number of parallel processes; by default limited by the cores and the free memory.
        progress: progress display.

    Raises:
        OutputError: for a result that cannot be written; earlier results are kept.
        ConfigurationError: for a cell that needs more memory than the machine has.
        BottleneckError: for a worker process that was killed.
    """
    make_folder(folder)
    done = finished(cells, folder)
    missing = [cell for cell in dict.fromkeys(cells) if cell not in done]
    for cell in missing:
        check_memory(cell, max_memory=max_memory)
    if done:
        progress.line(f"{len(done)} of {len(done) + len(missing)} cells already have results in {folder}")
    if processes is None:
        largest = max((memory(cell, max_memory=max_memory) for cell in missing), default=1)
        processes = min(cores(), free_memory() // largest)
    processes = 1 if device != "cpu" else max(1, min(processes, len(missing)))
    how = folder, device, max_memory, max(1, torch.get_num_threads() // processes)

    def saved() -> str:
        count = len(finished(cells, folder))
        return f"{count} of {len({*cells})} cells are kept in {folder}, and the same command fits the others"

    if missing and progress is not SILENT:
        each = duration(sum(seconds(cell, device, count=how[-1]) for cell in missing) / processes)
        progress.line(f"about {each} for {len(missing)} fits, from one pass of each model and size over its contexts")
    with note_if_interrupted(saved), progress.bar("fitting", len(missing), "cells") as bar:
        here = ((cell, work(cell, *how[:3])) for cell in missing)
        for cell, result in run_in_workers(_work, how, missing, processes=processes) if processes > 1 else here:
            done[cell] = result
            bar.advance(1)
            progress.line(_describe(result))
    if len(kinds := sorted({result["device"].partition(":")[0] for result in done.values()})) > 1:
        progress.line(f"these cells were fitted on {' and '.join(kinds)}, each of which draws its own distributions")
    return [done[cell] for cell in cells]


def finished(cells: Iterable[Cell], folder: Path) -> dict[Cell, CellResult]:
    """Return the results in ``folder``."""
    return {cell: result for cell in cells if (result := read(cell, folder)) is not None}


def work(cell: Cell, folder: Path, device: str, max_memory: int) -> CellResult:
    """Return a cell's result from ``folder``, or run the cell and write its result there."""
    result = read(cell, folder)
    if result is None:
        result = run(cell, device=resolve_device(device), max_memory=max_memory)
        write(cell, result, make_folder(folder))
    return result


def _work(how: tuple[Path, str, int, int], cell: Cell) -> CellResult:
    """Do one cell in a worker process."""
    with threads(how[-1]):
        return work(cell, *how[:-1])


def _describe(result: CellResult) -> str:
    cell = f"{result['model']}, α {result['alpha']:g}, M {result['vocab']}, D {result['dim']}, seed {result['seed']}"
    if result["diverged"]:
        return f"{cell}: diverged after {result['steps']} steps"
    mark = "" if result["converged"] else ", not converged"
    return f"{cell}: mode {100 * result['mode_match']:.1f} %, KL {result['kl']:.4g}, {result['seconds']:.0f} s{mark}"
