"""The machine at hand: its devices, and what a measured time must be read beside."""

from __future__ import annotations

import os
import platform
from typing import Any

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
