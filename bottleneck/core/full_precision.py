"""Full precision and evaluation mode for measurements, whatever settings the caller has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import nn


@contextmanager
def full_precision(*, gradients: bool = False) -> Iterator[None]:
    """Switch TF32, autocast and, by default, gradients off inside the block; restore the settings after it.

    The settings of products belong to the process: the first of several threads saves them, the last restores them.
    """
    _PRODUCTS.enter()
    try:
        with ExitStack() as stack:
            for kind in _kinds():
                stack.enter_context(torch.autocast(kind, enabled=False))
            stack.enter_context(torch.set_grad_enabled(gradients and torch.is_grad_enabled()))
            yield
    finally:
        _PRODUCTS.leave()


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
    """Return the values outside `full_precision` of the settings that it changes, by name, ready for JSON."""
    return {
        "autocast": any(map(torch.is_autocast_enabled, _kinds())),
        **{each.name: each.found for each in _PRODUCTS.saved or _switches()},
    }


def _kinds() -> list[str]:
    """Return the kinds of devices that torch computes on here."""
    accelerator = torch.accelerator.current_accelerator()
    return ["cpu"] if accelerator is None else ["cpu", accelerator.type]


class _Switch(NamedTuple):
    """A setting that lowers the precision of float32 products."""

    name: str
    set: Callable[[Any], None]
    found: Any
    """What it is now."""
    full: Any
    """What leaves the products whole."""


class _Products:
    """The settings of the process, and the number of blocks of all threads that need them at full precision."""

    def __init__(self) -> None:
        self._lock, self._blocks = threading.Lock(), 0
        self.saved: list[_Switch] = []

    def enter(self) -> None:
        with self._lock:
            if self._blocks == 0:
                self.saved = _switches()
                for each in self.saved:
                    each.set(each.full)
            self._blocks += 1

    def leave(self) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0:
                for each in self.saved:
                    each.set(each.found)
                self.saved = []


_PRODUCTS = _Products()


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
