"""A dumped log-probability store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ...errors import StoreError
from ...spectrum import Precision
from ...spectrum.blocks import checked
from .. import store
from ..base import Block, Bound, Source


@final
class StoreSource(Source):
    """The matrix of a store, with the provenance recorded in it; every chunk is checked as it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._attributes = store.read_attributes(path)
        try:
            self._read()
        except (KeyError, TypeError) as error:
            raise StoreError(f"the store {path} is damaged ({error!r}): dump into another one") from error

    def _read(self) -> None:
        """Take everything but the rows."""
        self.shape = (self._attributes["contexts"], self._attributes["vocab"])
        self.description = {**self._attributes["source"], "path": str(self._path), "kind": "store"}
        self.bound = Bound(**self._attributes["bound"])
        self.embedding_size = self._attributes["embedding_size"]
        self.dtype = self._attributes["dtype"]
        self.targets = store.read_targets(self._path)
        self.identity = {**self._attributes["identity"], "manifest": store.manifest_sha256(self._path)}
        self._precision = Precision.read(self._attributes["eps"])

    @property
    def precision(self) -> Precision:
        """As recorded when the store was written."""
        return self._precision

    def blocks(self, rows: int | None = None, *, wanted: Callable[[int], bool] = lambda start: True) -> Iterator[Block]:
        """Yield the rows, read and checked chunk by chunk."""
        chunk_rows = self._attributes["chunk_rows"]
        if rows in (None, chunk_rows):
            pieces = store.read_blocks(self._path, self._attributes, wanted=wanted)
        else:
            pieces = (piece for piece in self._regrouped(rows) if wanted(piece[0]))
        for start, values in pieces:
            values = next(checked([values], what=str(self._path), start=start, minus_inf=self.passes_minus_inf))
            yield Block(start, values)

    def rows_at_once(self) -> int:
        """Return how many rows a chunk holds: then nothing is read twice, or copied."""
        return int(self._attributes["chunk_rows"])

    def _regrouped(self, rows: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield ``rows`` rows at once, whatever the chunks hold."""
        held, first = np.empty((0, self.shape[1]), self.dtype), 0
        for _, values in store.read_blocks(self._path, self._attributes):
            held = np.concatenate([held, values]) if len(held) else values
            while len(held) >= rows:
                yield first, held[:rows]
                held, first = held[rows:], first + rows
        if len(held):
            yield first, held
