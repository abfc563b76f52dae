"""Description of this machine: its devices, memory, and the data that a measured time depends on."""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from ..errors import ConfigurationError


def machine(device: str = "cpu") -> dict[str, Any]:
    """Return the processor, its cores, torch's threads, instructions and version, and the ``device`` if it is a GPU."""
    import torch

    from .devices import ask

    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        **({} if device == "cpu" else {"gpu": ask(device, "get_device_name", device) or device}),
    }


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else os.cpu_count() or 1


def free_memory(root: Path = Path("/")) -> int:
    """Return the bytes that this process can still allocate, within the machine's memory and its control groups.

    The limit of a container or a batch job is that of a control group (Linux, versions 1 and 2). Cached file contents
    are not counted as used, because the system frees them on demand.

    Args:
        root: folder that holds ``proc`` and ``sys``.
    """
    return max(0, min([psutil.virtual_memory().available, *_free_in_groups(root)]))


def _free_in_groups(root: Path) -> Iterator[int]:
    """Yield the remaining bytes of each limit: of the process's control group and of its parents."""
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
                whole = "total_" if controllers else ""  # in version 1, without it the value leaves out subgroups
                files = int(stat[f"{whole}inactive_file"]) + int(stat[f"{whole}active_file"])
                yield int(limit) - int(used) + files


_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def parse_size(size: int | str | None) -> int | None:
    """Return a number of bytes, read from ``8GiB``, ``500 MB`` or a plain number; ``None`` for ``None``.

    Raises:
        ConfigurationError: for a text that is not a size.
    """
    if size is None or isinstance(size, int):
        return size
    match = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([a-z]*)\s*", str(size).lower())
    if not match or match[2] not in _UNITS:
        raise ConfigurationError(f"{size!r} is not a size; write it as 8GiB, 500MiB or a number of bytes")
    return int(float(match[1]) * _UNITS[match[2]])


def status(field: str) -> int:
    """Return a size that Linux reports for this process, such as ``VmHWM`` or ``RssAnon``, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])


def peak_memory_bytes() -> int:
    """Return the largest resident size of this process so far."""
    try:
        # On Linux, getrusage also counts the memory of the parent when it started this process.
        return status("VmHWM")
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it.

    >>> duration(0.25), duration(90), duration(5400), duration(400_000)
    ('0.25 s', '1.5 minutes', '1.5 hours', '4.6 days')
    """
    for limit, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= limit:
            return f"{seconds / limit:.1f} {unit}"
    return f"{seconds:.2g} s"
