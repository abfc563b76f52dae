"""Cells as an array of Slurm jobs, through submitit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from ..files import make_folder
from .cells import Cell
from .grid import work
from .targets import DEFAULT_MEMORY


def submit(
    cells: Sequence[Cell],
    folder: Path,
    *,
    device: str = "cpu",
    max_memory: int = DEFAULT_MEMORY,
    parameters: Mapping[str, Any] | None = None,
) -> list[str]:
    """Submit one job a cell and return the jobs' numbers; they write the same files that `run_grid` reads.

    Args:
        cells: what to run; a job whose cell is there already ends at once.
        folder: of the cells' files, seen by all machines; Slurm's own output goes to ``folder/slurm``.
        device: of the fits.
        max_memory: bytes of P* a cell may keep.
        parameters: of submitit's executor, as in ``{"slurm_partition": "gpu", "timeout_min": 60}``.

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
    try:
        executor = submitit.AutoExecutor(folder=logs, cluster="slurm")
        executor.update_parameters(name="bottleneck-synthetic", **(parameters or {}))
    except (RuntimeError, NameError, ValueError, TypeError, AssertionError) as error:
        raise ConfigurationError(f"cells cannot be submitted to Slurm from here: {error}") from error
    count = len(cells)
    jobs = executor.map_array(work, cells, [folder] * count, [device] * count, [max_memory] * count)
    return [str(job.job_id) for job in jobs]
