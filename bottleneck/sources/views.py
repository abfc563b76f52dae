"""Views of other sources: the finite columns of one, and the difference of two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from ..core.progress import SILENT, Progress
from ..errors import MatrixError
from ..heads import RankBound
from ..language_models.source import Block, Cost, FactorRows, JoinedFactor, Source
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

    def rows_at_once(self) -> int:
        """Return the number of rows in a block of the whole source."""
        return self._source.rows_at_once()

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield the rows; see `Source.blocks`."""
        for block in self._source.blocks(self.ranges() if ranges is None else ranges):
            yield Block(block.start, block.log_probs[:, self._columns])


@final
class Difference(Source):
    """log P − log Q of two sources with the same contexts, up to a constant in each row, which row-centring removes.

    Columns are the first tokens, as many as both sources have. If both have thin factors, so has A (`JoinedFactor`);
    otherwise rows are centred here, before their squares are summed.

    Args:
        first: source of log P.
        second: source of log Q.
    """

    embedding_size = None
    dtype = "float64"

    def __init__(self, first: Source, second: Source) -> None:
        self._both = first, second
        self.shape = (first.shape[0], min(first.shape[1], second.shape[1]))
        self.description = {"path": f"{first.description['path']} − {second.description['path']}", "kind": "matrix"}
        bounds = (first.bound.centered, second.bound.centered)
        self.bound = RankBound(None, None if None in bounds else sum(filter(None, bounds)), "the bounds of both, added")

    @property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """The hashes of both."""
        return {f"{n} {key}": each for n, source in enumerate(self._both) for key, each in source.identity.items()}

    @property
    def precision(self) -> Precision:
        """The coarser precision of both."""
        return max((source.precision for source in self._both), key=lambda precision: precision.value)

    @property
    def cost(self) -> Cost:
        """The cost of both."""
        one, other = (source.cost for source in self._both)
        return Cost(one.operations + other.operations, one.memory_bytes + other.memory_bytes)

    def factors(self) -> FactorRows | None:
        """Return X and Y of the difference, if both sources have factors."""
        one, other = (source.factors() for source in self._both)
        if one is None or other is None:
            return None

        tokens = np.arange(self.shape[1])
        joined = JoinedFactor(
            *(each.right if each.right.shape[0] == len(tokens) else each.right.of(tokens) for each in (one, other))
        )

        def left(ranges: Iterable[range]) -> Iterator[NDArray[np.float64]]:
            ranges = list(ranges)
            return (joined.left(*rows) for rows in zip(one.left(ranges), other.left(ranges), strict=True))

        return FactorRows(left, joined)

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield the rows, −∞ where either probability is 0; see `Source.blocks`."""
        chosen = self.ranges() if ranges is None else list(ranges)
        for one, other in zip(*(source.blocks(chosen) for source in self._both), strict=True):
            p, q = (block.log_probs[:, : self.shape[1]].astype(np.float64) for block in (one, other))
            rows = np.where(np.isneginf(p) | np.isneginf(q), -np.inf, p - np.where(np.isneginf(q), 0.0, q))
            known = rows > -np.inf
            means = rows.sum(1, keepdims=True, where=known) / np.maximum(1, known.sum(1, keepdims=True))
            yield Block(one.start, rows - means)


def _finite(source: Source, progress: Progress) -> NDArray[np.bool_]:
    """Return whether each column is finite in every row, (M,)."""
    finite = np.ones(source.shape[1], dtype=bool)
    with progress.bar("looking for columns of −inf", source.shape[0], "contexts") as bar:
        for rows in checked((block.log_probs for block in source.blocks()), minus_inf=True):
            finite &= (rows > -np.inf).all(0)
            bar.advance(len(rows))
    return finite
