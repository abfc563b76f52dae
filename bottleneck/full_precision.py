"""Full precision and evaluation mode for measurements, whatever settings the caller has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import nn


@contextmanager
def full_precision(*, gradients: bool = False) -> Iterator[None]:
    """Switch TF32, autocast and, by default, gradients off inside the block; restore the settings after it."""
    switches = _switches()
    try:
        for each in switches:
            each.set(each.full)
        autocast = torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False)
        with torch.set_grad_enabled(gradients and torch.is_grad_enabled()), autocast[0], autocast[1]:
            yield
    finally:
        for each in switches:
            each.set(each.found)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode inside the block, without gradients; restore every part's own mode."""
    training = [each for each in module.modules() if each.training]
    try:
        module.eval()
        with torch.no_grad():
            yield
    finally:
        for each in training:
            each.training = True


def precision_state() -> dict[str, Any]:
    """Return the current values of the settings that `full_precision` changes, by name, ready for JSON."""
    autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    return {"autocast": autocast, **{each.name: each.found for each in _switches()}}


class _Switch(NamedTuple):
    """A setting that lowers the precision of float32 products."""

    name: str
    set: Callable[[Any], None]
    found: Any
    """What it is now."""
    full: Any
    """What leaves the products whole."""


def _switches() -> list[_Switch]:
    backends: Any = torch.backends
    if hasattr(backends, "fp32_precision"):
        # Since torch 2.9 each operator has its own setting; once one was used, torch refuses the older names.
        names = ("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")
        operators = {name: attrgetter(name)(backends) for name in names}
        return [
            _Switch(name, partial(setattr, each, "fp32_precision"), each.fp32_precision, "ieee")
            for name, each in operators.items()
        ]
    matmul, cudnn = torch.get_float32_matmul_precision(), backends.cudnn
    return [
        _Switch("float32_matmul", torch.set_float32_matmul_precision, matmul, "highest"),
        _Switch("cudnn.allow_tf32", partial(setattr, cudnn, "allow_tf32"), cudnn.allow_tf32, False),
    ]
