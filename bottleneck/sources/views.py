"""The finite columns of another source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from ..core.progress import SILENT, Progress
from ..errors import MatrixError
from ..language_models.source import Block, FactorRows, Source
from ..spectrum import Precision
from ..spectrum.blocks import checked


@final
class FiniteColumns(Source):
    """The columns of another source that are finite in every row, found from its factors or in a pass over its rows.

    The remaining rows are log-probabilities up to a constant, which is zero if every dropped token has probability zero
    in all rows. The description gives the number of dropped columns. Everything else is that of the whole source.

    Args:
        source: the source; NaN and +∞ are refused.
        progress: where to report the pass.

    Raises:
        MatrixError: when no column is finite.
    """

    def __init__(self, source: Source, *, progress: Progress = SILENT) -> None:
        self._source, self._factors = source, source.factors()
        finite = _finite(source, progress) if self._factors is None else ~self._factors.right.masked
        if not finite.any():
            raise MatrixError(
                "every column of the matrix holds -inf, so nothing is left when they are dropped: give the numbers of "
                "all tokens, as they are before each context's most likely ones are chosen (top-k, top-p)"
            )
        self._columns: NDArray[np.int64] = np.flatnonzero(finite)
        self.shape = (source.shape[0], len(self._columns))
        dropped = source.shape[1] - len(self._columns)
        self.description = {**source.description, "dropped_columns": dropped}
        left_out = f"; {dropped:,} columns with -inf are left out" if dropped else ""
        self.bound = replace(source.bound, why=source.bound.why + left_out)
        self.embedding_size, self.dtype = source.embedding_size, source.dtype
        self.targets = None  # targets are column indices of the whole source
        self.identity = {**source.identity, "dropped_columns": str(dropped)}

    def prepare(self, progress: Progress = SILENT) -> None:
        """Prepare the whole source."""
        self._source.prepare(progress)

    @property
    def precision(self) -> Precision:
        """The precision of the whole source."""
        return self._source.precision

    @property
    def exponent(self) -> int:
        """The exponent of the whole source."""
        return self._source.exponent

    def rank_warning(self, eps: float) -> str:
        """Return the warning of the whole source."""
        return self._source.rank_warning(eps)

    def entry_warning(self) -> str:
        """Return the warning of the whole source."""
        return self._source.entry_warning()

    def factors(self) -> FactorRows | None:
        """Return the factors of the remaining columns; a column of A is a row of Y."""
        return self._factors and self._factors._replace(right=self._factors.right.of(self._columns))

    def variants(self) -> Mapping[str, Source]:
        """Return the variants of the whole source, without their columns that are not finite."""
        return {key: FiniteColumns(variant) for key, variant in self._source.variants().items()}

    def rows_at_once(self) -> int:
        """Return the number of rows in a block of the whole source."""
        return self._source.rows_at_once()

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield the rows; see `Source.blocks`."""
        for block in self._source.blocks(self.ranges() if ranges is None else ranges):
            yield Block(block.start, block.log_probs[:, self._columns])


def _finite(source: Source, progress: Progress) -> NDArray[np.bool_]:
    """Return whether each column is finite in every row, (M,)."""
    finite = np.ones(source.shape[1], dtype=bool)
    with progress.bar("looking for columns of −inf", source.shape[0], "contexts") as bar:
        for rows in checked((block.log_probs for block in source.blocks()), minus_inf=True):
            finite &= (rows > -np.inf).all(0)
            bar.advance(len(rows))
    return finite
