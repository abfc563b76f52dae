"""The first rows of another source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, final

from numpy.typing import NDArray

from ...errors import SourceError
from ...spectrum import Precision
from ..base import Block, Source


@final
class FirstContexts(Source):
    """The first ``contexts`` rows of a store or a matrix; a `RunSource` takes them itself, as it encodes no more."""

    def __init__(self, source: Source, contexts: int) -> None:
        if not 1 <= contexts <= source.shape[0]:
            raise SourceError(f"--contexts must be between 1 and the {source.shape[0]:,} there are, not {contexts:,}")
        self._source = source
        self.shape = (contexts, source.shape[1])
        self.description, self.bound, self.embedding_size = source.description, source.bound, source.embedding_size
        self.dtype = source.dtype
        self.targets = None if source.targets is None else source.targets[:contexts]

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """That of the whole, and how many rows are taken."""
        return {**self._source.identity, "contexts": str(self.shape[0])}

    @property
    def passes_minus_inf(self) -> bool:
        """As the whole does."""
        return self._source.passes_minus_inf

    @passes_minus_inf.setter
    def passes_minus_inf(self, passes: bool) -> None:
        self._source.passes_minus_inf = passes

    @property
    def exponent(self) -> int:
        """That of the whole."""
        return self._source.exponent

    @property
    def caution(self) -> str:
        """That of the whole."""
        return self._source.caution

    @property
    def precision(self) -> Precision:
        """That of the whole."""
        return self._source.precision

    def rows_at_once(self) -> int:
        """Return what suits the whole."""
        return min(self.shape[0], self._source.rows_at_once())

    def entries(self) -> Iterator[NDArray[Any]]:
        """Yield the first rows of the whole's entries."""
        start = 0
        for rows in self._source.entries():
            yield rows[: self.shape[0] - start]
            start += len(rows)
            if start >= self.shape[0]:
                return

    def blocks(self, rows: int | None = None, *, wanted: Callable[[int], bool] = lambda start: True) -> Iterator[Block]:
        """Yield the rows in order; see `Source.blocks`."""
        for block in self._source.blocks(rows or self.rows_at_once(), wanted=wanted):
            if block.start >= self.shape[0]:
                return
            yield Block(block.start, block.log_probs[: self.shape[0] - block.start])
