"""Full precision and evaluation mode for measurements, whatever settings the caller has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ..errors import SourceError
from .devices import forked_random

_LOCK = threading.RLock()


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
def alone() -> Iterator[None]:
    """Let one thread at a time run and look at modules: two would take each other's hooks and modes."""
    with _LOCK:
        yield


@contextmanager
def evaluating(module: nn.Module, *, writes: bool = False) -> Iterator[None]:
    """Put a module into evaluation mode inside the block, without gradients; restore random state and all modes.

    Args:
        module: the module.
        writes: whether the block may write to parameters and buffers.

    Raises:
        SourceError: for parameters without numbers, and after the block, if it wrote to a parameter or buffer.
    """
    tensors = dict(chain(module.named_parameters(), module.named_buffers()))
    if lazy := [name for name, tensor in tensors.items() if is_lazy(tensor)]:
        raise SourceError(f"the parameter {lazy[0]} of {type(module).__name__} has no numbers yet: run the module once")
    device = next((tensor.device for tensor in tensors.values() if tensor.device.type != "meta"), "cpu")
    with alone(), forked_random(device):
        parts: list[Any] = [*module.modules()]
        modes = [(part, part.training) for part in parts]
        rwkv = [(part, part.layers_are_rescaled) for part in parts if type(part).__name__ == "RwkvModel"]
        versions = {name: tensor._version for name, tensor in tensors.items() if not tensor.is_inference()}
        try:
            module.eval()
            with torch.no_grad():
                yield
        finally:
            for part, was_rescaled in rwkv:
                # It divides weights by powers of two when it is evaluated, and multiplies them again in training.
                part.training = not was_rescaled
                part._rescale_layers()
            for part, mode in modes:  # parents first: a class of its own may do more than set the mode
                if part.training != mode:
                    part.train(mode)
    written = [name for name, version in versions.items() if tensors[name]._version != version]
    if written and not writes and not rwkv:
        raise SourceError(
            f"the forward pass of {type(module).__name__} writes to its {written[0]}, so it would change: "
            "measure a function of ids, softmax_bottleneck.rank(lambda ids: model(ids).logits, data=batches)"
        )


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
