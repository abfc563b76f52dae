"""Windows of a long text for a model of bounded context, and the hidden states of their tokens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST_IN_MEMORY = 1 << 30
"""Bytes of hidden states above which they are kept in a temporary file, which is read in order."""


@dataclass(frozen=True)
class Windows:
    """Windows of L = ``length`` tokens, each ``stride`` tokens after the one before.

    A context is all tokens of its window up to one of them, and it has at least L − stride + 1 tokens. So each token
    from index L − stride + 1 on is predicted in exactly one window, and row r of the matrix predicts token
    ``minimum + r``.
    """

    tokens: int
    """Number of tokens of the text, at least L + 1."""
    length: int
    stride: int
    """1 to L."""

    @property
    def minimum(self) -> int:
        """Number of tokens of the shortest context."""
        return self.length - self.stride + 1

    @property
    def contexts(self) -> int:
        """The number T of predicted tokens."""
        return self.tokens - self.minimum


class HiddenStates:
    """The rows of H, (T, d); each window is encoded once, on demand.

    Args:
        encode: function from ids and mask, both int64 (B, L), to hidden states (B, L, d); padding on the right has
            mask 0.
        ids: int64, (N,), the text.
        windows: windows of the text.
        shape: (T, d).
        dtype: type of the hidden states.
        batch_size: windows encoded at once.
    """

    def __init__(
        self,
        encode: Callable[[Tensor, Tensor], Tensor],
        ids: Tensor,
        windows: Windows,
        *,
        shape: tuple[int, int],
        dtype: torch.dtype,
        batch_size: int,
    ) -> None:
        self._encode, self._ids, self._windows, self._batch_size = encode, ids, windows, batch_size
        self._done: set[int] = set()
        if shape[0] * shape[1] * dtype.itemsize <= LARGEST_IN_MEMORY:
            self._states = torch.empty(shape, dtype=dtype)
        else:
            with tempfile.NamedTemporaryFile(prefix="hidden-states-") as file:
                # The mapping outlives the file's name, so the disk space is freed whenever the process ends.
                self._states = torch.from_file(file.name, shared=True, size=shape[0] * shape[1], dtype=dtype).view(
                    shape
                )

    def rows(self, start: int, stop: int) -> Tensor:
        """Return the hidden states of contexts ``start`` to ``stop`` − 1, on the CPU: (n, d)."""
        rows = self._windows.stride * self._batch_size
        for first in range(start // rows * rows, stop, rows):
            if first not in self._done:
                self._make(first, min(first + rows, len(self._states)))
                self._done.add(first)
        return self._states[start:stop]

    def _make(self, first: int, stop: int) -> None:
        """Encode the windows of the contexts ``first`` to ``stop`` − 1."""
        least, end = self._windows.minimum - 1, self._windows.minimum + len(self._states) - 1
        starts = torch.arange(first, stop, self._windows.stride).unsqueeze(1)
        places = starts + torch.arange(min(self._windows.length, end - first))
        hidden = self._encode(self._ids[places.clamp(max=end - 1)], (places < end).long())[:, least:]
        self._states[first:stop] = hidden.flatten(0, 1)[: stop - first].cpu()
