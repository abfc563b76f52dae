"""A dumped log-probability store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import final

from ...spectrum import Precision
from ...spectrum.compute import checked
from .. import store
from ..base import Block, Bound, Source


@final
class StoreSource(Source):
    """The matrix of a store, with the provenance recorded in it; every chunk is checked as it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._attributes = store.read_attributes(path)
        self.shape = (self._attributes["contexts"], self._attributes["vocab"])
        self.description = {**self._attributes["source"], "path": str(path), "kind": "store"}
        self.bound = Bound(**self._attributes["bound"])
        self.embedding_size = self._attributes["embedding_size"]
        self.dtype = self._attributes["dtype"]
        self.targets = store.read_targets(path)
        self.identity = self._attributes["identity"]

    @property
    def precision(self) -> Precision:
        """As recorded when the store was written."""
        return Precision(**self._attributes["eps"])

    def blocks(self, rows: int | None = None, *, wanted: Callable[[int], bool] = lambda start: True) -> Iterator[Block]:
        """Yield the rows chunk by chunk; ``rows`` is the store's own choice."""
        for start, values in store.read_blocks(self._path, self._attributes):
            if wanted(start):
                yield Block(start, next(checked([values], what=str(self._path))))
