"""A matrix without the columns that hold −∞: tokens that a model was told never to predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from ...errors import MatrixError
from ...progress import SILENT, Progress
from ...spectrum import Precision
from ...spectrum.blocks import checked
from ..base import Block, FactorRows, Source


@final
class FiniteColumns(Source):
    """The columns of another source that are finite in every row: of its factors, or found in a pass of its own.

    The rows of what is left still are log-probabilities up to a constant: where a token's probability is zero in all
    rows, exactly; its description says how many columns are gone.

    Args:
        source: one that can pass −∞ on; NaN and +∞ are refused as ever.
        progress: where to report the pass.

    Raises:
        MatrixError: when no column is finite.
    """

    def __init__(self, source: Source, *, progress: Progress = SILENT) -> None:
        source.passes_minus_inf = True
        self._source, self._factors = source, source.factors()
        finite = _finite(source, progress) if self._factors is None else ~np.isneginf(self._factors.right).any(1)
        if not finite.any():
            raise MatrixError("every column of the matrix holds -inf: nothing is left when they are dropped")
        self._kept: NDArray[np.int64] = np.flatnonzero(finite)
        self.shape = (source.shape[0], len(self._kept))
        dropped = source.shape[1] - len(self._kept)
        self.description = {**source.description, "dropped_columns": dropped}
        left_out = f"; {dropped:,} columns with -inf are left out" if dropped else ""
        self.bound = replace(source.bound, why=source.bound.why + left_out)
        self.embedding_size, self.dtype = source.embedding_size, source.dtype
        self.targets = None  # they count the columns of the whole
        self.identity = {**source.identity, "dropped_columns": str(dropped)}

    @property
    def precision(self) -> Precision:
        """That of the whole."""
        return self._source.precision

    @property
    def exponent(self) -> int:
        """That of the whole."""
        return self._source.exponent

    def factors(self) -> FactorRows | None:
        """Return those of the whole: a column of A is a row of Y."""
        return self._factors and self._factors._replace(right=self._factors.right[self._kept])

    def variants(self) -> Mapping[str, Source]:
        """Return those of the whole, without such columns of theirs."""
        return {key: FiniteColumns(variant) for key, variant in self._source.variants().items()}

    def rows_at_once(self) -> int:
        """Return what suits the whole."""
        return self._source.rows_at_once()

    def blocks(self, rows: int | None = None, *, wanted: Callable[[int], bool] = lambda start: True) -> Iterator[Block]:
        """Yield the rows in order; see `Source.blocks`."""
        for block in self._source.blocks(rows, wanted=wanted):
            yield Block(block.start, block.log_probs[:, self._kept])


def _finite(source: Source, progress: Progress) -> NDArray[np.bool_]:
    """Return which columns are finite in every row, (M,)."""
    finite = np.ones(source.shape[1], dtype=bool)
    with progress.bar("looking for columns of −inf", source.shape[0], "contexts") as bar:
        for rows in checked((block.log_probs for block in source.blocks()), minus_inf=True):
            finite &= (rows > -np.inf).all(0)
            bar.advance(len(rows))
    return finite
