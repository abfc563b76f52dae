"""The final hidden states of a text, computed window by window on demand, and kept."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from .windows import Windows

LARGEST_IN_MEMORY = 1 << 30
"""Bytes of hidden states above which they are kept in a temporary file, which is read in order."""


class HiddenStates:
    """The rows of H, (T, d); each window is encoded once, on demand.

    Args:
        encode: function from ids and mask, both int64 (B, L), to hidden states (B, L, d); padding on the right has
            mask 0.
        ids: int64, (N,), the text.
        windows: windows of the text.
        contexts: number of rows T.
        size: hidden size d.
        dtype: type of the hidden states.
        batch_size: windows encoded at once.
    """

    def __init__(
        self,
        encode: Callable[[Tensor, Tensor], Tensor],
        ids: Tensor,
        windows: Windows,
        *,
        contexts: int,
        size: int,
        dtype: torch.dtype,
        batch_size: int,
    ) -> None:
        self._encode, self._ids, self._windows = encode, ids, windows
        self._contexts, self._batch_size = contexts, batch_size
        self._done: set[int] = set()
        count = contexts * size
        if count * dtype.itemsize <= LARGEST_IN_MEMORY:
            self._states = torch.empty(contexts, size, dtype=dtype)
        else:
            with tempfile.NamedTemporaryFile(prefix="hidden-states-") as file:
                # The mapping outlives the file's name, so the disk space is freed whenever the process ends.
                mapped = torch.from_file(str(Path(file.name)), shared=True, size=count, dtype=dtype)
            self._states = mapped.view(contexts, size)

    def rows(self, start: int, stop: int) -> Tensor:
        """Return the hidden states of contexts ``start`` to ``stop`` − 1, on the CPU: (n, d)."""
        stop = min(stop, self._contexts)
        stride = self._windows.stride
        batches = {number // self._batch_size for number in range(start // stride, (stop - 1) // stride + 1)}
        for batch in sorted(batches - self._done):
            self._make(batch)
            self._done.add(batch)
        return self._states[start:stop]

    def _make(self, batch: int) -> None:
        stride = self._windows.stride
        last = (self._contexts - 1) // stride
        numbers = range(batch * self._batch_size, min((batch + 1) * self._batch_size, last + 1))
        windows = [self._windows.window(number, self._contexts) for number in numbers]
        ids = torch.zeros(len(windows), max(window.length for window in windows), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, window in enumerate(windows):
            ids[row, : window.length] = self._ids[window.start : window.start + window.length]
            mask[row, : window.length] = 1
        hidden = self._encode(ids, mask)
        for row, (number, window) in enumerate(zip(numbers, windows, strict=True)):
            kept = hidden[row, window.skipped : window.length]
            self._states[number * stride : number * stride + len(kept)] = kept.cpu()
