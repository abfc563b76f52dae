"""Inspect the entries of a matrix of unknown origin in one pass, before it is decomposed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MatrixError
from .blocks import WHOLE, native_dtype
from .precision import EPS, Precision, precision
from .rounding import COLUMNS, FEWEST, ROWS, Rounding, can_show, find_rounding
from .rules import MARGIN, tolerance

MASK = -1e4
"""A token this many nats below the likeliest one in every context has been masked: no model's roundoff allows less
than e^-104 in float32, and float64 ends at -745."""
FITTING = 0.9
"""Share of a row's entries that must fit a narrower type to show that the row was rounded to it."""
COUNTING = 128
"""Integers below this are exact in every type, and show nothing about the type."""
LEAST_ENERGY = 1e-6
"""Least share of the energy that half of the rows or columns hold, unless a few of them dominate."""
ROW_SUM_TOLERANCE = 32
"""Allowed error of log Σ P of a row, in units of eps · log M: the rounding of each log P and of a careful softmax."""
FEW = 100
"""One row in this many, and at least two rows, may fit a narrower type by chance."""
MOST_DECIMALS = 15
"""Most decimals looked for; formats print six to twelve."""
SEEN_STEPS = 64
"""Least step of cut decimals in units of float64's own: finer ones cannot be told from it."""
LARGEST_EXPONENT = 300
"""Entries up to 2^±300 have squares that float64 holds, and sums of them."""
TINY = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14}
"""Smallest number of full precision of each type."""


class Inspection:
    """Infers the precision of a matrix from its blocks, the size of its entries, and what makes its rank doubtful.

    The precision is that of the matrix's type, or of a narrower type if nearly all entries of the sampled rows fit it
    exactly. Small integers are ignored. For blocks of several types, the narrowest type counts.

    Args:
        rows: number T of rows, or ``None`` if it is unknown; then the first rows are the sample.
        dtypes: types of the entries, if `noting` does not see them.
        language: whether rows are logits or log-probabilities, which may have been rounded before normalization, hold
            masked tokens, and are integers of 128 or more only if they were rounded.
    """

    def __init__(self, rows: int | None, *, dtypes: Iterable[str] = (), language: bool) -> None:
        self.dtypes, self._language = set(dtypes), language
        self._share = 1.0 if rows is None else min(1.0, ROWS / rows)
        self._random = np.random.default_rng(0)
        self._sample: list[NDArray[np.float64]] = []
        self._likeliest: list[NDArray[np.float64]] = []  # largest entry of each sampled row, (n, 1)
        self._row_energies: list[NDArray[np.float64]] = []
        self._column_energies: NDArray[np.float64] | float = 0.0
        self._finite: NDArray[np.int64] | int = 0
        self._below_likeliest: NDArray[np.float64] | float = -np.inf
        self._hidden: NDArray[np.int64] | int = 0
        self.largest = 0.0
        """The largest absolute value."""

    def note(self, dtypes: Iterable[str]) -> None:
        """Record types of the entries."""
        self.dtypes |= set(dtypes)

    def noting(self, blocks: Iterable[Any]) -> Iterator[Any]:
        """Yield arrays or tensors unchanged, and record their types."""
        for block in blocks:
            self.note([native_dtype(block)])
            yield block

    def watch(self, block: NDArray[Any]) -> None:
        """Inspect (n, M) rows, which are finite or −∞."""
        rows = block.astype(np.float64)
        likeliest = rows.max(1, keepdims=True)
        if self._language:
            with np.errstate(invalid="ignore"):  # a row of −∞ alone
                below = rows - likeliest
            self._below_likeliest = np.maximum(self._below_likeliest, below.max(0))
            self._hidden = self._hidden + ((below < MASK) & (rows > -np.inf)).sum(0)
        infinite = np.isneginf(rows)
        self._finite = self._finite + (len(rows) - infinite.sum(0))
        rows[infinite] = 0.0
        self.largest = max(self.largest, float(np.abs(rows).max()))
        with np.errstate(over="ignore"):
            self._row_energies.append(np.einsum("ij,ij->i", rows, rows))
            self._column_energies = self._column_energies + np.einsum("ij,ij->j", rows, rows)
        if sum(map(len, self._sample)) < 2 * ROWS:
            taken = self._random.random(len(rows)) < self._share
            columns = np.linspace(0, rows.shape[1] - 1, min(COLUMNS, rows.shape[1])).astype(int)
            self._sample.append(rows[np.ix_(taken, columns)])
            self._likeliest.append(likeliest[taken])

    @property
    def exponent(self) -> int:
        """Return e such that 2^−e times the matrix has squares within float64's range; 0 if it needs no scaling."""
        if self.largest == 0:
            return 0
        exponent = math.frexp(self.largest)[1]
        return exponent if abs(exponent) > LARGEST_EXPONENT else 0

    @property
    def masked(self) -> NDArray[np.bool_]:
        """Whether each column is a token that every row masks by a large negative number, (M,)."""
        below = np.asarray(self._below_likeliest)
        return np.isfinite(below) & (below < MASK)

    def precision(self) -> Precision:
        """Return the inferred precision of the entries.

        Raises:
            MatrixError: when the largest entry is subnormal in its type, so that digits were lost.
        """
        sample = np.concatenate(self._sample)
        if self._language:
            sample = sample[:, (sample - np.concatenate(self._likeliest) > MASK).all(0)]
        stored = max({"float64", *self.dtypes} - {WHOLE}, key=EPS.__getitem__)
        if self.dtypes == {WHOLE}:
            return precision(stored, assumed=True)
        narrow = max({stored, *self._fitting(sample)}, key=EPS.__getitem__)
        if 0 < self.largest < TINY.get(stored, 0.0):
            raise MatrixError(
                f"the largest number, {self.largest:.3g}, is subnormal in {stored}: its digits were lost; multiply the "
                "matrix by a power of two before it is stored, no rank depends on the scale"
            )
        judged = replace(precision(narrow, assumed=True), tested=bool(sample.size))
        if self._language and sample.size and not _counting(sample).all():
            rounding = find_rounding(sample, eps=judged.value)
            if narrow not in ("float64", "float32"):
                step = judged.value * float(np.sqrt(np.mean(sample**2)))  # of the entries themselves
                rounding = Rounding(step, 1.0, narrow)
            judged = replace(judged, rounding=rounding, tested=can_show(sample))
        if narrow == "float64" and (places := _decimals(sample)) is not None:
            judged = replace(judged, rounding=Rounding(10.0**-places, 1.0, f"{places} decimals"))
        return judged

    def root_mean_square(self) -> float:
        """Return the root mean square of the finite entries, without those of masked tokens."""
        energies, finite = (np.asarray(each)[~self.masked].sum() for each in (self._column_energies, self._finite))
        return float(np.sqrt(energies / finite)) if finite else 0.0

    def caution(self, eps: float) -> str:
        """Return a sentence if a few rows or columns hold most of the energy, which makes any rank doubtful, or ''.

        Columns of masked tokens do not count: they are refused, or left out.
        """
        rows = np.concatenate(self._row_energies)
        columns = np.where(self.masked, 0.0, self._column_energies)
        limit = MARGIN * tolerance(1.0, (len(rows), len(columns)), eps, "press")
        for name, energies in (("row", rows), ("column", columns)):
            order = np.argsort(energies)
            held = np.cumsum(energies[order])  # by the smallest ones
            lost = int(np.searchsorted(held, min(limit**2, LEAST_ENERGY) * held[-1]))
            if 2 * lost > len(energies) and held[lost - 1] > 0:
                share, kept = held[lost - 1] / held[-1], f"{len(energies) - lost:,} of {len(energies):,} {name}s"
                return (
                    f"all but {share:.1e} of the matrix's energy sits in {kept}, the largest in {name} {order[-1]:,}: "
                    f"the tolerance hides all others; scale or leave out such {name}s"
                )
        hidden = int(np.asarray(self._hidden)[~self.masked].sum()) if self._language else 0
        if hidden:
            return (
                f"{hidden:,} entries lie {-MASK:,.0f} nats or more below their row's largest: masks of single contexts "
                "hide what the other entries show"
            )
        return ""

    def _fitting(self, sample: NDArray[np.float64]) -> set[str]:
        rows = np.sort(sample, 1)
        telling = ~_counting(rows) if self._language else rows != np.rint(rows)
        if not telling.any():
            return set()
        telling[:, 1:] &= rows[:, 1:] != rows[:, :-1]  # a constant row is one number
        counts = telling.sum(1)
        enough = counts >= FEWEST
        names = set()
        for name in ("float32", "bfloat16", "float16"):
            fits = _fits(rows, name)
            rows_that_fit = int(((fits & telling).sum(1)[enough] >= FITTING * counts[enough]).sum())
            if fits.all() or rows_that_fit >= max(2, len(rows) / FEW):
                names.add(name)
        return names


def _counting(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return (values == np.rint(values)) & (np.abs(values) < COUNTING)


def _decimals(values: NDArray[np.float64]) -> int | None:
    """Return how many decimals all numbers have, if a format cut them: numbers of few digits may be exact."""
    finest = SEEN_STEPS * EPS["float64"] * np.abs(values).max(initial=0.0)
    for places in range(1, MOST_DECIMALS + 1):
        if 10.0**-places <= finest or not values.size:
            return None
        if np.array_equal(values, values.round(places)):
            return places if np.median(np.abs(values)) * 10**places >= COUNTING else None
    return None


def _fits(values: NDArray[np.float64], name: str) -> NDArray[np.bool_]:
    """Return which float64 values a narrower type represents exactly."""
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
        if name == "float16":
            return np.asarray(values.astype(np.float16).astype(np.float64) == values)
    exact = single.astype(np.float64) == values
    return exact & (single.view(np.uint32) & 0xFFFF == 0) if name == "bfloat16" else exact
