"""Cells as an array of Slurm jobs, through submitit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from ..files import make_folder
from ..progress import SILENT, Progress
from .cells import Cell
from .grid import finished, memory, work
from .targets import DEFAULT_MEMORY

MINUTES = 24 * 60
"""Time limit of a job by default; submitit's own is five minutes."""


def submit(
    cells: Sequence[Cell],
    folder: Path,
    *,
    device: str = "cpu",
    max_memory: int = DEFAULT_MEMORY,
    parameters: Mapping[str, Any] | None = None,
    progress: Progress = SILENT,
) -> list[str]:
    """Submit one job a cell that is not there yet and return the jobs' numbers; they write what `run_grid` reads.

    Args:
        cells: what to run.
        folder: of the cells' files, seen by all machines; Slurm's own output goes to ``folder/slurm``.
        device: of the fits, as ``--device`` has it; ``"auto"`` is that of the machine where a job runs.
        max_memory: bytes of P* a cell may keep.
        parameters: of submitit's executor, as in ``{"slurm_partition": "gpu", "timeout_min": 60}``; by default a day
            and the memory that the largest cell takes.
        progress: hears of files that are damaged.

    Raises:
        ConfigurationError: when submitit is not installed, there is no Slurm here, or it refuses the parameters.
    """
    try:
        import submitit
    except ImportError as error:
        raise ConfigurationError(
            "--launcher slurm needs the package submitit: pip install 'softmax-bottleneck[slurm]'"
        ) from error
    logs = make_folder(folder / "slurm")
    there = finished(cells, folder, progress)
    missing = [cell for cell in dict.fromkeys(cells) if cell not in there]
    try:
        executor = submitit.AutoExecutor(folder=logs, cluster="slurm")
        largest = max((memory(cell, max_memory=max_memory) for cell in missing), default=0)
        needed = {"timeout_min": MINUTES, "mem_gb": max(1, math.ceil(largest / 2**30))}
        executor.update_parameters(name="bottleneck-synthetic", **needed | dict(parameters or {}))
        if not missing:
            return []
        count = len(missing)
        jobs = executor.map_array(work, missing, [folder] * count, [device] * count, [max_memory] * count)
    except (RuntimeError, NameError, ValueError, TypeError, AssertionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"cells cannot be submitted to Slurm from here: {reason}") from error
    return [str(job.job_id) for job in jobs]
