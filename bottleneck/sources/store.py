"""A dumped log-probability store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, final

from numpy.typing import NDArray

from ..errors import StoreError
from ..heads import RankBound
from ..language_models.source import Block, Source, spanning
from ..spectrum import Precision
from ..spectrum.blocks import checked
from . import store_files as store
from .opening import Kind


@final
class StoreSource(Source):
    """The matrix of a store, with the provenance recorded in it; every chunk is checked as it is read.

    Args:
        path: folder of the store.
        kind: the default, or what the store records that it holds.
    """

    def __init__(self, path: str | Path, *, kind: str = "log-probs") -> None:
        self._path = path = Path(path)
        self._attributes = store.read_attributes(path)
        store.check_kind(kind, self._attributes, str(path))
        try:
            self._read()
        except (KeyError, TypeError) as error:
            raise StoreError(f"the store {path} is damaged ({error!r}): dump into another one") from error

    def _read(self) -> None:
        """Read everything but the rows."""
        self.shape = (self._attributes["contexts"], self._attributes["vocab"])
        self.description = {**self._attributes["source"], "path": str(self._path), "kind": "store"}
        self.bound = RankBound(**self._attributes["bound"])
        self.embedding_size = self._attributes["embedding_size"]
        self.dtype = self._attributes["dtype"]
        self.targets = store.read_targets(self._path)
        self.identity = {**self._attributes["identity"], "manifest": store.manifest_sha256(self._path)}
        self._manifest = store.read_manifest(self._path)
        self._precision = Precision.read(self._attributes["eps"])

    @property
    def precision(self) -> Precision:
        """The precision recorded when the store was written."""
        return self._precision

    def rank_warning(self, eps: float) -> str:
        """Return the caution recorded when the store was written."""
        return str(self._attributes.get("caution", ""))

    def entry_warning(self) -> str:
        """Return what was recorded of the entries when the store was written."""
        return str(self._attributes.get("replaced", ""))

    @property
    def exponent(self) -> int:
        """The exponent recorded when the store was written."""
        return int(self._attributes.get("exponent", 0))

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield the rows; every chunk that holds them is read and checked once."""
        chunk = lru_cache(1)(self._chunk)
        for rows in self.ranges() if ranges is None else ranges:
            yield Block(rows.start, spanning(rows, self.rows_at_once(), chunk))

    def _chunk(self, number: int) -> NDArray[Any]:
        start = number * self.rows_at_once()
        values = store.read_chunk(self._path, self._attributes, self._manifest, start)
        return next(checked([values], what=str(self._path), start=start, minus_inf=True))

    def rows_at_once(self) -> int:
        """Return the number of rows in a chunk, so that no chunk is read twice or copied."""
        return int(self._attributes["chunk_rows"])


def _matches(source: Any) -> bool:
    return isinstance(source, str) and (source.endswith(".zarr") or store.is_store(Path(source)))


KIND = Kind(what="a dumped store", matches=_matches, open=StoreSource)
