"""What a measured time must be read beside."""

from __future__ import annotations

import os
import platform
from typing import Any


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
