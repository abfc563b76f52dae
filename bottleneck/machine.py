"""The machine at hand: its devices, and what a measured time must be read beside."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from .errors import ConfigurationError


def machine(device: str = "cpu") -> dict[str, Any]:
    """Return the processor, its cores, torch's threads, instructions and version, and the GPU where it is used.

    Args:
        device: where the work is done: ``"cpu"`` or a CUDA device.
    """
    import torch

    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        **({"gpu": torch.cuda.get_device_name(device)} if device.startswith("cuda") else {}),
    }


def free_memory(root: Path = Path("/")) -> int:
    """Return how many bytes this process may still take, of the machine's memory and of its control groups'.

    A container's or a batch job's limit is that of a control group (Linux, versions 1 and 2), which the machine's own
    figures do not show. What files' contents take of it is given back on demand and does not count.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    return max(0, min([psutil.virtual_memory().available, *_free_in_groups(root)]))


def _free_in_groups(root: Path) -> Iterator[int]:
    """Yield what is left of each limit: of the process's control group and of those it lies in."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        inside = Path(path.lstrip("/"))
        for group in (inside, *inside.parents):
            folder = root / "sys/fs/cgroup" / controllers / group
            try:
                limit, used = ((folder / name).read_text(encoding="utf-8").strip() for name in names)
                stat = dict(row.split() for row in (folder / "memory.stat").read_text(encoding="utf-8").splitlines())
            except OSError:  # not mounted here, or without limits
                continue
            if limit != "max":
                whole = "total_" if controllers else ""  # in version 1 the same without it is of the group alone
                files = int(stat[f"{whole}inactive_file"]) + int(stat[f"{whole}active_file"])
                yield int(limit) - int(used) + files


def resolve_device(device: str) -> str:
    """Return ``"cpu"`` or a CUDA device, ``"auto"`` being CUDA where there is one.

    Raises:
        ConfigurationError: CUDA is asked for and not there.
    """
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigurationError("CUDA was asked for, but torch sees no CUDA device; use --device cpu")
    return device
