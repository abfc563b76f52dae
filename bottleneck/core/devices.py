"""The device that torch computes on: the CPU, or the machine's accelerator, whatever its kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigurationError, Parameter, unknown
from .options import DEVICES


def resolve_device(device: str | torch.device) -> str:
    """Return the name of a device that torch sees, such as ``"cpu"``, ``"cuda:1"``, ``"mps"`` or ``"xpu"``.

    ``"auto"`` is the machine's accelerator if there is one.

    Raises:
        ConfigurationError: for an unknown device, or one that torch does not see here.
    """
    if torch.get_default_device().type == "meta":
        raise ConfigurationError("torch makes tensors without numbers: call torch.set_default_device('cpu') first")
    name, accelerator = str(device), torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return "cpu" if accelerator is None else accelerator.type
    one = known(name)
    if one.type == "cpu":
        return "cpu"
    if accelerator is None or one.type != accelerator.type or (one.index or 0) >= torch.accelerator.device_count():
        raise ConfigurationError(f"torch does not see the device {name}: use ", Parameter("device", "cpu"))
    return name


def known(device: str) -> torch.device:
    """Return a device by its name; `ConfigurationError` if torch does not know it."""
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ConfigurationError(unknown("device", device, DEVICES)) from error


def ask(device: str | torch.device, function: str, *arguments: Any) -> Any:
    """Return what a function of the device's torch module returns, such as ``mem_get_info`` of `torch.cuda`.

    ``None`` for the CPU, and where the module lacks it: Apple's GPUs, for example, do not count their peak memory.
    """
    where = torch.device(device)
    called = None if where.type == "cpu" else getattr(torch.get_device_module(where), function, None)
    return None if called is None else called(*arguments)


def forked_random(device: str | torch.device) -> AbstractContextManager[None]:
    """Return a context that restores the random numbers of the CPU and of a device when it ends."""
    where = torch.device(device)
    return torch.random.fork_rng([] if where.type == "cpu" else [where], device_type=where.type)


def has_float64(device: str | torch.device) -> bool:
    """Return whether a device computes in float64; Apple's GPUs and some of Intel's do not."""
    where = torch.device(device)
    return where.type in ("cpu", "cuda", "meta") or _adds_in_float64(where)


@cache
def _adds_in_float64(device: torch.device) -> bool:
    try:
        torch.ones((), dtype=torch.float64, device=device).add_(1)
    except (TypeError, RuntimeError):
        return False
    return True


def sum_type(device: torch.device) -> torch.dtype:
    """Return the type of long sums on a device: float64, or float32 where it has none."""
    return torch.float64 if has_float64(device) else torch.float32


def exact_device(device: torch.device) -> torch.device:
    """Return the device, or the CPU in place of one without float64."""
    return device if has_float64(device) else torch.device("cpu")


def exact(tensor: Tensor) -> Tensor:
    """Return a tensor in float64, on its `exact_device`."""
    return tensor.to(exact_device(tensor.device), torch.float64)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch compute on so many threads of the processor."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
