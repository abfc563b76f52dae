"""Run another's torch module for a measurement, and leave the module as it was."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import SourceError

_LOCK = threading.RLock()
_LONGEST = 10_000
"""Entries of a container beyond which its entries are restored, and what they hold is not."""


@contextmanager
def alone() -> Iterator[None]:
    """Let one thread at a time run and look at modules: two would take each other's hooks and modes."""
    with _LOCK:
        yield


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode inside the block, without gradients; afterwards it is as it was before.

    A forward pass may write: RWKV divides its weights, others count calls, keep running statistics or make a buffer.
    Storage that is about to be written is copied first and restored afterwards. Attributes of modules, and the lists,
    dictionaries, sets and NumPy arrays in them, are restored to their former entries.

    Raises:
        SourceError: for a module whose parameters get their shapes, and random numbers, from the first forward pass.
    """
    with alone():
        if lazy := [name for name, parameter in module.named_parameters() if is_lazy(parameter)]:
            raise SourceError(
                f"the parameter {lazy[0]} of {type(module).__name__} has no numbers yet: run the module once first"
            )
        state = _State(module)
        copies = _CopyOnWrite(state.tensors)
        try:
            with torch.no_grad(), copies:
                module.eval()
                yield
        finally:
            state.restore()
            copies.restore()


class _State:
    """The attributes of a module and of its parts."""

    def __init__(self, module: nn.Module) -> None:
        self.tensors: list[Tensor] = []
        self._containers: list[tuple[Any, Any]] = []
        seen: dict[int, Any] = {}
        waiting: list[tuple[Any, bool]] = [(module, True)]
        while waiting:
            value, is_owned = waiting.pop()
            if id(value) in seen or isinstance(value, ModuleType):
                continue
            seen[id(value)] = value
            if isinstance(value, Tensor):
                self.tensors.append(value)
            elif isinstance(value, np.ndarray | dict | list | set | deque):
                self._containers.append((value, value.copy()))
            if isinstance(value, dict | list | set | deque | tuple) and len(value) <= _LONGEST:
                waiting += [(each, is_owned) for each in (value.values() if isinstance(value, dict) else value)]
            # Attributes of an object in an attribute count; those of objects in them may belong to others.
            is_part = isinstance(value, nn.Module | Tensor)
            attributes = getattr(value, "__dict__", None)
            if isinstance(attributes, dict) and (is_owned or is_part):
                waiting.append((attributes, is_part))
        self._aliases = [(each, each.detach()) for each in self.tensors if not each.is_meta]

    def restore(self) -> None:
        """Give every attribute and container its former entries, and every tensor its former storage."""
        for now, before in self._containers:
            if isinstance(now, np.ndarray):
                if now.shape == before.shape and now.tobytes() != before.tobytes():
                    now[...] = before
            elif _entries(now) != _entries(before):
                now.clear()
                now.extend(before) if isinstance(now, list | deque) else now.update(before)
        for tensor, alias in self._aliases:
            if _place(tensor) != _place(alias):
                tensor.data = alias


def _entries(container: Any) -> list[int]:
    """Return what identifies the entries of a dictionary, list, set or deque, in their order."""
    parts = (container, container.values()) if isinstance(container, dict) else (container,)
    entries = [id(each) for part in parts for each in part]
    return sorted(entries) if isinstance(container, set) else entries


def _place(tensor: Tensor) -> tuple[Any, ...]:
    key = _storage_key(tensor)
    return key and (*key, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)


def _storage_key(tensor: Tensor) -> tuple[int, ...]:
    """Return where the numbers of a tensor are; nothing for a tensor without numbers of its own."""
    try:
        return (tensor.untyped_storage().data_ptr(),)
    except (RuntimeError, NotImplementedError):  # sparse, quantized and wrapped tensors
        return ()


class _CopyOnWrite(TorchDispatchMode):
    """Copy the storage of a tensor before an operation writes to it."""

    supports_higher_order_operators = True

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__()
        self._storages = {key: each.untyped_storage() for each in tensors if any(key := _storage_key(each))}
        self._copies: dict[tuple[int, ...], Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation of torch."""
        schema, named = getattr(func, "_schema", None), kwargs or {}
        # The operations of a batch norm write running statistics, and their schemas do not say so.
        hidden = schema is not None and "batch_norm" in schema.name
        if schema is not None and (hidden or schema.is_mutable):
            for number, argument in enumerate(schema.arguments):
                if hidden or (argument.alias_info is not None and argument.alias_info.is_write):
                    self._keep(args[number] if number < len(args) else named.get(argument.name))
        return func(*args, **named)

    def _keep(self, written: Any) -> None:
        for each in written if isinstance(written, list | tuple) else (written,):
            key = _storage_key(each) if isinstance(each, Tensor) else ()
            if key in self._storages and key not in self._copies:
                self._copies[key] = self._storages[key].clone()

    def restore(self) -> None:
        """Write the copies back."""
        for key, copy in self._copies.items():
            self._storages[key].copy_(copy)
