"""Parts of another source: its first rows, or its finite columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ..core.progress import SILENT, Progress
from ..errors import MatrixError
from ..language_models.source import Block, Cost, FactorRows, Source, first_contexts
from ..spectrum import Precision
from ..spectrum.blocks import checked


class _View(Source):
    """A part of another source, whose rows are computed and rounded as there."""

    _source: Source

    def prepare(self, progress: Progress = SILENT) -> None:
        """Prepare the whole source."""
        self._source.prepare(progress)

    @property
    def precision(self) -> Precision:
        """As for the whole source."""
        return self._source.precision

    @property
    def expected_precision(self) -> Precision:
        """As for the whole source."""
        return self._source.expected_precision

    @property
    def exponent(self) -> int:
        """As for the whole source."""
        return self._source.exponent

    def rank_warning(self, eps: float) -> str:
        """Return the warning of the whole source."""
        return self._source.rank_warning(eps)

    def entry_warning(self) -> str:
        """Return the warning of the whole source."""
        return self._source.entry_warning()


@final
class FirstContexts(_View):
    """The first ``contexts`` rows of another source.

    Raises:
        SourceError: when the source has fewer rows.
    """

    def __init__(self, source: Source, contexts: int) -> None:
        first_contexts(contexts, source)
        self._source = source
        self.shape = (contexts, source.shape[1])
        self.description, self.bound, self.embedding_size = source.description, source.bound, source.embedding_size
        self.dtype, self.text, self.factor_columns = source.dtype, source.text, source.factor_columns
        self.targets = None if source.targets is None else source.targets[:contexts]

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """The identity of the whole source and the number of rows."""
        return {**self._source.identity, "contexts": str(self.shape[0])}

    def factors(self) -> FactorRows | None:
        """Return the factors of the whole source."""
        return self._source.factors()

    def variants(self) -> Mapping[str, Source]:
        """Return the first rows of the whole's variants."""
        return {key: FirstContexts(variant, self.shape[0]) for key, variant in self._source.variants().items()}

    @property
    def cost(self) -> Cost:
        """The rows' share of the whole's operations, and its memory."""
        whole = self._source.cost
        return whole._replace(operations=whole.operations * self.shape[0] / self._source.shape[0])

    def rows_at_once(self) -> int:
        """Return what suits the whole."""
        return min(self.shape[0], self._source.rows_at_once())

    @property
    def entries_shape(self) -> tuple[int, int]:
        """The first rows of the whole's entries."""
        contexts, columns = self._source.entries_shape
        return min(self.shape[0], contexts), columns

    def entries(self) -> Iterator[NDArray[Any]]:
        """Yield the first rows of the whole source's entries."""
        start = 0
        for rows in self._source.entries():
            yield rows[: self.shape[0] - start]
            start += len(rows)
            if start >= self.shape[0]:
                return

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield the rows; see `Source.blocks`."""
        return self._source.blocks(self.ranges() if ranges is None else ranges)


@final
class FiniteColumns(_View):
    """The columns of another source that are finite in every row, found from its factors or in a pass over its rows.

    The remaining rows are log-probabilities up to a constant, which is zero if every dropped token has probability zero
    in all rows. The description gives the number of dropped columns.

    Args:
        source: the source; NaN and +∞ are refused.
        progress: where to report the pass.

    Raises:
        MatrixError: when no column is finite.
    """

    def __init__(self, source: Source, *, progress: Progress = SILENT) -> None:
        self._source, self._factors = source, source.factors()
        finite = _finite(source, progress) if self._factors is None else ~np.isneginf(self._factors.right).any(1)
        if not finite.any():
            raise MatrixError(
                "every column of the matrix holds -inf, so nothing is left when they are dropped: give the numbers of "
                "all tokens, as they are before each context's most likely ones are chosen (top-k, top-p)"
            )
        self._kept: NDArray[np.int64] = np.flatnonzero(finite)
        self.shape = (source.shape[0], len(self._kept))
        dropped = source.shape[1] - len(self._kept)
        self.description = {**source.description, "dropped_columns": dropped}
        left_out = f"; {dropped:,} columns with -inf are left out" if dropped else ""
        self.bound = replace(source.bound, why=source.bound.why + left_out)
        self.embedding_size, self.dtype = source.embedding_size, source.dtype
        self.targets = None  # targets are column indices of the whole source
        self.identity = {**source.identity, "dropped_columns": str(dropped)}

    def factors(self) -> FactorRows | None:
        """Return the factors of the kept columns; a column of A is a row of Y."""
        return self._factors and self._factors._replace(right=self._factors.right[self._kept])

    def variants(self) -> Mapping[str, Source]:
        """Return the variants of the whole source, without their columns that are not finite."""
        return {key: FiniteColumns(variant) for key, variant in self._source.variants().items()}

    def rows_at_once(self) -> int:
        """Return what suits the whole."""
        return self._source.rows_at_once()

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield the rows; see `Source.blocks`."""
        for block in self._source.blocks(self.ranges() if ranges is None else ranges):
            yield Block(block.start, block.log_probs[:, self._kept])


def _finite(source: Source, progress: Progress) -> NDArray[np.bool_]:
    """Return whether each column is finite in every row, (M,)."""
    finite = np.ones(source.shape[1], dtype=bool)
    with progress.bar("looking for columns of −inf", source.shape[0], "contexts") as bar:
        for rows in checked((block.log_probs for block in source.blocks()), minus_inf=True):
            finite &= (rows > -np.inf).all(0)
            bar.advance(len(rows))
    return finite
