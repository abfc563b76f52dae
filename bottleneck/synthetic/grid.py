"""A grid of cells on one machine, in parallel processes. Saved results of finished cells are used again."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from itertools import product
from pathlib import Path

import torch

from ..core.files import make_folder, unfinished
from ..core.interruption import explained
from ..core.machine import cores, free_memory, resolve_device
from ..core.progress import SILENT, Progress
from ..core.workers import without_interrupts, worker_pool
from ..errors import BottleneckError, ConfigurationError
from .cells import Cell, Result, read, run, write
from .dirichlet import BLOCK_ENTRIES
from .fit import FitConfig
from .metrics import SAMPLE
from .targets import DEFAULT_MEMORY

PROCESS_BYTES = 600 << 20
"""Memory of a worker process before its first cell: Python, torch and its libraries."""
BLOCK_COPIES = 24
"""Peak memory in float32 blocks, that of the float64 evaluation of a mixture."""
PARAMETER_COPIES = 8
"""Copies of each parameter: value, gradient, Adam's two moments, the best value, and those of the evaluation."""
SAMPLE_COPIES, EMBEDDING_COPIES = 5, 6
"""Float64 copies of log P* and log Q that `metrics.matrices` needs, and of the embeddings in `metrics.reachable`."""


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
        ConfigurationError: for a grid without cells, or a cell that cannot be run.
    """
    config = fit or FitConfig()
    cells = [
        Cell(model=model, alpha=alpha, vocab=vocab, dim=dim, contexts=contexts, seed=seed, fit=config)
        for vocab, dim, alpha, model, seed in product(vocabs, dims, alphas, models, range(seeds))
    ]
    if not cells:
        raise ConfigurationError(
            "the grid is empty: name at least one model, alpha, vocabulary and dimension, one seed"
        )
    return sorted(dict.fromkeys(cells), key=lambda cell: cell.vocab * cell.dim)


def memory(cell: Cell, *, max_memory: int = DEFAULT_MEMORY) -> int:
    """Return an estimate of the bytes that a process needs to run this cell."""
    entries = cell.contexts * cell.vocab
    kept = 4 * entries if 4 * entries <= max_memory else 0
    blocks = BLOCK_COPIES * 4 * max(BLOCK_ENTRIES, cell.vocab)
    parameters = PARAMETER_COPIES * 4 * cell.dim * (cell.contexts + cell.vocab)
    sample = 8 * cell.vocab * (SAMPLE_COPIES * min(SAMPLE, cell.contexts) + EMBEDDING_COPIES * cell.dim)
    return PROCESS_BYTES + kept + parameters + max(blocks, sample)


def run_grid(
    cells: Sequence[Cell],
    folder: Path,
    *,
    device: str = "cpu",
    max_memory: int = DEFAULT_MEMORY,
    processes: int | None = None,
    progress: Progress = SILENT,
) -> list[Result]:
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
        BottleneckError: for a worker process that was killed.
    """
    make_folder(folder)
    done = finished(cells, folder, progress)
    missing = [cell for cell in dict.fromkeys(cells) if cell not in done]
    if done:
        progress.line(f"{len(done)} of {len(done) + len(missing)} cells already have results in {folder}")
    for cell in missing:
        for file in unfinished(folder, f"{cell.name}.json"):
            file.unlink(missing_ok=True)
    count = 1 if device != "cpu" else _processes(missing, max_memory) if processes is None else processes

    def kept() -> str:
        count = len(finished(cells, folder))
        return f"{count} of {len({*cells})} cells are kept in {folder}, and the same command fits the others"

    with explained(kept), progress.bar("fitting", len(missing), "cells") as bar:
        for cell, result in _completed(missing, folder, device, max_memory, min(count, len(missing))):
            done[cell] = result
            bar.advance(1)
            progress.line(_describe(result))
    if len(kinds := sorted({result["device"].partition(":")[0] for result in done.values()})) > 1:
        progress.line(f"these cells were fitted on {' and '.join(kinds)}, each of which draws its own distributions")
    return [done[cell] for cell in cells]


def finished(cells: Iterable[Cell], folder: Path, progress: Progress = SILENT) -> dict[Cell, Result]:
    """Return the results in ``folder``; ``progress`` shows a warning for each file that was damaged or changed."""
    return {cell: result for cell in cells if (result := read(cell, folder, progress.line)) is not None}


def work(cell: Cell, folder: Path, device: str, max_memory: int) -> Result:
    """Return a cell's result from ``folder``, or run the cell and write its result there."""
    result = read(cell, folder, lambda text: None)
    if result is None:
        result = run(cell, device=resolve_device(device), max_memory=max_memory)
        write(cell, result, make_folder(folder))
    return result


def _processes(cells: Sequence[Cell], max_memory: int) -> int:
    largest = max((memory(cell, max_memory=max_memory) for cell in cells), default=1)
    return max(1, min(cores(), free_memory() // largest))


def _completed(
    cells: Sequence[Cell], folder: Path, device: str, max_memory: int, processes: int
) -> Iterator[tuple[Cell, Result]]:
    """Yield cells and results as they finish. One process means this process; more are started as workers."""
    if processes <= 1:
        yield from ((cell, work(cell, folder, device, max_memory)) for cell in cells)
        return
    threads = max(1, torch.get_num_threads() // processes)
    try:
        with worker_pool(processes, initializer=_start_worker, initargs=(threads,)) as pool:
            with without_interrupts():
                waiting = {pool.submit(work, cell, folder, device, max_memory): cell for cell in cells}
            for future in as_completed(waiting):
                yield waiting[future], future.result()
    except BrokenProcessPool as error:
        raise BottleneckError(
            "a worker process was killed, probably because memory ran out: run the same command again with fewer "
            "--processes; finished cells are kept"
        ) from error


def _start_worker(threads: int) -> None:
    """Set the number of threads, and end this worker process when its parent ends."""
    torch.set_num_threads(threads)

    def wait() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _describe(result: Result) -> str:
    cell = f"{result['model']}, α {result['alpha']:g}, M {result['vocab']}, D {result['dim']}, seed {result['seed']}"
    if result["diverged"]:
        return f"{cell}: diverged after {result['steps']} steps"
    mark = "" if result["converged"] else ", not converged"
    return f"{cell}: mode {100 * result['mode_match']:.1f} %, KL {result['kl']:.4g}, {result['seconds']:.0f} s{mark}"
