"""A matrix without the columns that hold −∞: tokens that a model was told never to predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from ...errors import MatrixError
from ...progress import SILENT, Progress
from ...spectrum import Precision
from ..base import Block, Source


@final
class FiniteColumns(Source):
    """The columns of another source that are finite in every row, found in a pass of its own.

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
        self._source = source
        finite = np.ones(source.shape[1], dtype=bool)
        with progress.bar("looking for columns of −inf", source.shape[0], "contexts") as bar:
            for block in source.blocks():
                finite &= (block.log_probs > -np.inf).all(0)
                bar.advance(len(block.log_probs))
        if not finite.any():
            raise MatrixError("every column of the matrix holds -inf: nothing is left when they are dropped")
        self._kept: NDArray[np.int64] = np.flatnonzero(finite)
        self.shape = (source.shape[0], len(self._kept))
        dropped = source.shape[1] - len(self._kept)
        self.description = {**source.description, "dropped_columns": dropped}
        self.bound = replace(source.bound, why=f"{source.bound.why}; {dropped:,} columns with -inf are left out")
        self.embedding_size, self.dtype = source.embedding_size, source.dtype
        self.targets = None  # they count the columns of the whole
        self.identity = {**source.identity, "dropped_columns": str(dropped)}

    @property
    def precision(self) -> Precision:
        """That of the whole."""
        return self._source.precision

    def rows_at_once(self) -> int:
        """Return what suits the whole."""
        return self._source.rows_at_once()

    def blocks(self, rows: int | None = None, *, wanted: Callable[[int], bool] = lambda start: True) -> Iterator[Block]:
        """Yield the rows in order; see `Source.blocks`."""
        for block in self._source.blocks(rows, wanted=wanted):
            yield Block(block.start, block.log_probs[:, self._kept])
