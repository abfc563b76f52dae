"""The settings of a decomposition, as one object that every function passes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import torch

from ..core.checks import check_positive
from ..core.devices import ask, resolve_device
from ..core.machine import free_memory, parse_size
from ..core.parallel import ALONE, Processes
from ..core.progress import SILENT, Progress, reporting
from .accelerator import arithmetic_for
from .arithmetic import Arithmetic


@dataclass(frozen=True, kw_only=True)
class SpectrumSettings:
    """How singular values are computed; `ConfigurationError` for a width below 1."""

    method: str = "auto"
    """Name of a spectrum method, or ``"auto"``."""
    max_memory: int | str | None = None
    """Bytes for the decomposition, or a size such as ``"1GiB"``; see `memory` for the default."""
    width: int = 1024
    """Number of dimensions of a sketch: beyond any output layer's rank bound, within any machine's memory."""
    device: str | torch.device = "auto"
    """Device that decomposes the matrix; the CPU does in place of one without float64."""
    progress: Progress = SILENT
    """Where to report."""
    processes: Processes = ALONE
    """Processes that share the rows."""

    def __post_init__(self) -> None:
        check_positive(width=self.width)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the settings among the options of a measurement."""
        named = {field.name: options[field.name] for field in fields(cls) if field.name in options}
        return cls(**{**named, "progress": reporting(options.get("progress", False))})

    @cached_property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic of the device."""
        return arithmetic_for(resolve_device(self.device))

    def memory(self) -> int:
        """Return the bytes that the decomposition may take, the same number in all processes.

        The default is half of the memory that the machine, or the job's control group, has free, in equal parts for the
        processes; on an accelerator it is the memory that the accelerator has free.
        """
        given, where = parse_size(self.max_memory), self.arithmetic.device
        if given is not None:
            return given
        free, _ = ask(where, "mem_get_info", where) or (free_memory() // (2 * self.processes.count), None)
        return min(self.processes.gather(int(free)))
