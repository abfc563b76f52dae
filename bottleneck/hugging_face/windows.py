"""The windows of a text that a model of bounded context reads, and the hidden states of its contexts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

LARGEST_IN_MEMORY = 1 << 30
"""Bytes of hidden states above which they are kept in a temporary file, which is read in order."""


class Windows:
    """Windows of a text of N tokens. A context is all tokens of its window before the token that it predicts.

    Args:
        starts: int64, (n,), ascending: index of each window's first token.
        places: int64, (T,), ascending: index of the token that each row of the matrix predicts, in the last window that
            begins ``least`` or more tokens before it.
        least: number of tokens of the shortest context.
    """

    def __init__(self, starts: Tensor, places: Tensor, least: int) -> None:
        first = torch.searchsorted(places, starts + least)  # the first row of each window
        has_rows = first < torch.cat([first[1:], torch.tensor([len(places)])])
        self.starts, self.places, self.least = starts[has_rows], places, least
        self.rows = torch.cat([first[has_rows], torch.tensor([len(places)])])
        """(n + 1,): window i predicts the rows from ``rows[i]`` to ``rows[i + 1] - 1``."""

    @cached_property
    def lengths(self) -> Tensor:
        """(n,), the number of tokens that are read in each window."""
        return self.places[self.rows[1:] - 1] - self.starts

    def first(self, contexts: int) -> Windows:
        """Return the windows of the first rows."""
        return Windows(self.starts, self.places[:contexts], self.least)


class HiddenStates:
    """The rows of H, (T, d); each window is encoded once, on demand.

    Args:
        encode: function from ids and mask, both int64 (B, L), to hidden states (B, L, d); padding on the right has
            mask 0.
        ids: int64, (N,), the text.
        windows: windows of the text.
        size: d.
        dtype: type of the hidden states.
        batch_size: windows encoded at once.
    """

    def __init__(
        self,
        encode: Callable[[Tensor, Tensor], Tensor],
        ids: Tensor,
        windows: Windows,
        *,
        size: int,
        dtype: torch.dtype,
        batch_size: int,
    ) -> None:
        self._encode, self._ids, self._windows, self._batch_size = encode, ids, windows, batch_size
        self._done: set[int] = set()
        shape = (len(windows.places), size)
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
        first, last = (int(torch.searchsorted(self._windows.rows, row, right=True)) - 1 for row in (start, stop - 1))
        for batch in range(first // self._batch_size, last // self._batch_size + 1):
            if batch not in self._done:
                self._make(slice(batch * self._batch_size, (batch + 1) * self._batch_size))
                self._done.add(batch)
        return self._states[start:stop]

    def _make(self, batch: slice) -> None:
        """Encode some windows."""
        starts, lengths = self._windows.starts[batch], self._windows.lengths[batch]
        rows = self._windows.rows[batch.start : batch.start + len(starts) + 1]
        columns = torch.arange(int(lengths.max()))
        ids = self._ids[(starts.unsqueeze(1) + columns).clamp(max=len(self._ids) - 1)]
        hidden = self._encode(ids, (columns < lengths.unsqueeze(1)).long())
        window = torch.repeat_interleave(rows.diff())
        last = self._windows.places[rows[0] : rows[-1]] - 1 - starts[window]
        self._states[rows[0] : rows[-1]] = hidden[window, last].cpu()
