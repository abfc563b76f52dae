"""Submission of cells as an array of Slurm jobs, by the package submitit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.allocator import keep_freed_memory
from ..core.files import make_folder
from ..core.progress import SILENT, Progress
from ..errors import ConfigurationError, Parameter
from .cells import Cell, CellResult
from .dirichlet import DEFAULT_MEMORY
from .grid import finished, memory, work

MINUTES = 24 * 60
"""Default time limit of a job; that of submitit is five minutes."""


def submit(
    cells: Sequence[Cell],
    folder: Path,
    *,
    device: str = "cpu",
    max_memory: int = DEFAULT_MEMORY,
    parameters: Mapping[str, Any] | None = None,
    progress: Progress = SILENT,
) -> list[str]:
    """Submit one job for each cell without a result and return the jobs' ids; `run_grid` reads the files they write.

    Args:
        cells: cells to run.
        folder: folder of the results' files, shared by all machines; Slurm's own output goes to ``folder/slurm``.
        device: device of the fits, as in ``--device``; ``"auto"`` is chosen on the machine where a job runs.
        max_memory: largest size of P*, in bytes, that a cell keeps in memory.
        parameters: parameters of submitit's executor, such as ``{"slurm_partition": "gpu", "timeout_min": 60}``; by
            default one day and the memory of the largest cell.
        progress: shows warnings for damaged files.

    Raises:
        ConfigurationError: when submitit or Slurm is not installed, or refuses the parameters.
    """
    try:
        import submitit
    except ImportError as error:
        raise ConfigurationError(
            Parameter("launcher", "slurm"), " needs the package submitit: pip install 'softmax-bottleneck[slurm]'"
        ) from error
    logs = make_folder(folder / "slurm")
    done = finished(cells, folder)
    missing = [cell for cell in dict.fromkeys(cells) if cell not in done]
    try:
        executor = submitit.AutoExecutor(folder=logs, cluster="slurm")
        largest = max((memory(cell, max_memory=max_memory) for cell in missing), default=0)
        needed = {"timeout_min": MINUTES, "mem_gb": max(1, math.ceil(largest / 2**30))}
        executor.update_parameters(name="bottleneck-synthetic", **needed | dict(parameters or {}))
        if not missing:
            return []
        count = len(missing)
        jobs = executor.map_array(_job, missing, [folder] * count, [device] * count, [max_memory] * count)
    except (RuntimeError, NameError, ValueError, TypeError, AssertionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"cells cannot be submitted to Slurm from here: {reason}") from error
    return [str(job.job_id) for job in jobs]


def _job(cell: Cell, folder: Path, device: str, max_memory: int) -> CellResult:
    """Run a cell in a process of its own."""
    keep_freed_memory()
    return work(cell, folder, device, max_memory)
