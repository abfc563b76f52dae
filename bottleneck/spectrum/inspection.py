"""Inspect the entries of a matrix of unknown origin in one pass, before it is decomposed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MatrixError
from .blocks import WHOLE, native_dtype
from .precision import EPS, Precision, precision
from .rounding import COLUMNS, FEWEST, ROWS, Rounding, can_show, can_show_grid, find_rounding
from .rules import MARGIN, tolerance

MASK = -1e4
"""A token this many nats below the likeliest one in every context has been masked: no model's roundoff allows less
than e^-104 in float32, and float64 ends at -745."""
FLOOR = -104.0
"""A token this many nats below the likeliest one has probability 0 in float32; the same number there in many rows is a
mask, or a floor for missing values."""
APART, ALONE = 50.0, 2.0
"""A row's lowest number is a mask if it lies so many nats, and so many times the spread of all others, below them."""
SUBNORMAL, MOST_STEPS, STEP_ERROR = 2.0**-149, 500.0, 2e-5
"""Step of float32's smallest numbers, the subnormal ones, the number of steps up to which they are looked for, and the
relative error of that number when a probability was computed from its float32 logarithm."""
CUT, NEAR = 0.01, 1e-6
"""Share of a row's entries that lie at its lowest number, and the part of its spread by which they may miss it, after a
truncation (top-k, top-p) or a floor; numbers of a continuous distribution lie there alone."""
FITTING = 0.9
"""Share of a row's entries that must fit a narrower type to show that the row was rounded to it."""
HALF = 0.5
"""Share of the rows with so low a number that must agree on it."""
COUNTING = 128
"""Integers below this are exact in every type, and show nothing about the type."""
LEAST_ENERGY = 1e-6
"""Least share of the energy that half of the rows or columns hold, unless a few of them dominate."""
ROW_SUM_TOLERANCE = 32
"""Allowed error of log Σ P of a row, in units of eps · log M: the rounding of each log P and of a careful softmax."""
LEAST_ROW_SUM = 1e-10
"""Allowed error of log Σ P of a row of any precision, in nats: that of 10⁵ terms added one by one, as
`numpy.logaddexp.reduce` adds them, reaches 10⁻¹¹ in float64."""
FEW = 100
"""One row in this many, and at least two rows, may fit a narrower type by chance."""
MOST_DECIMALS = 15
"""Most decimals looked for; formats print six to twelve."""
FEWEST_DIGITS = 4
"""Fewest significant digits that count as cut off; numbers of fewer may be exact."""
SEEN_STEPS = 8
"""Least step of printed numbers in units of their type's own: finer ones cannot be told from it."""
LARGEST_EXPONENT = 300
"""Entries up to 2^±300 have squares that float64 holds, and sums of them."""
TINY = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14}
"""Smallest number of full precision of each type."""


def allowed_log_sum(eps: float, vocab: int) -> float:
    """Return the largest |log Σ P| of a row, in nats, that a roundoff of ``eps`` explains."""
    return max(LEAST_ROW_SUM, ROW_SUM_TOLERANCE * eps * max(1.0, math.log(vocab)))


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
        self._multipliers = np.random.default_rng(1)
        self._of_columns: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._row_hashes: list[NDArray[np.uint64]] = []
        self._column_hashes: NDArray[np.uint64] | int = 0
        self._finite: NDArray[np.int64] | int = 0
        self._below_likeliest: NDArray[np.float64] | float = -np.inf
        self._hidden: NDArray[np.int64] | int = 0
        self._floors: Counter[tuple[float, int, bool]] = Counter()  # a row's lowest number, its column, several times?
        self._alone: Counter[int] = Counter()  # rows whose lowest number is a mask, by its column
        self._subnormal = self._tiny = 0  # probabilities of whole steps of float32, and all of so few steps
        self._cut: NDArray[np.int64] | int = 0  # sampled rows that were cut off at their lowest number, by column
        self._rows_cut = 0
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
        if self._language and below.min() < FLOOR:
            columns = np.where(infinite, np.inf, rows).argmin(1)
            lowest = rows[np.arange(len(rows)), columns]
            low = lowest - likeliest[:, 0] < FLOOR
            several = (rows[low] == lowest[low, None]).sum(1) > 1
            self._floors.update(zip(lowest[low].tolist(), columns[low].tolist(), several.tolist(), strict=True))
        if self._language and below.min() < -APART:
            self._see_masks(np.where(infinite, np.inf, rows), likeliest)
            self._see_subnormal(rows)
        self._finite = self._finite + (len(rows) - infinite.sum(0))
        rows[infinite] = 0.0
        self._hash(rows)
        self.largest = max(self.largest, float(np.abs(rows).max()))
        with np.errstate(over="ignore"):
            self._row_energies.append(np.einsum("ij,ij->i", rows, rows))
            self._column_energies = self._column_energies + np.einsum("ij,ij->j", rows, rows)
        if sum(map(len, self._sample)) < 2 * ROWS:
            taken = (self._random.random(len(rows)) < self._share) & (likeliest[:, 0] > -np.inf)
            if self._language:
                self._see_cut(np.where(infinite | (below < MASK), np.inf, rows)[taken], likeliest[taken])
            columns = np.linspace(0, rows.shape[1] - 1, min(COLUMNS, rows.shape[1])).astype(int)
            self._sample.append(rows[np.ix_(taken, columns)])
            self._likeliest.append(likeliest[taken])

    def _hash(self, rows: NDArray[np.float64]) -> None:
        """Hash rows and columns by sums modulo 2⁶⁴, which no order of summation changes."""
        bits = rows.view(np.uint64).byteswap()  # the leading bits, the only ones that narrow types set, count in full
        if not self._row_hashes:
            self._of_columns = self._multipliers.integers(1 << 63, size=rows.shape[1:], dtype=np.uint64)
        of_rows = self._multipliers.integers(1 << 63, size=rows.shape[:1], dtype=np.uint64)
        self._row_hashes.append(np.einsum("ij,j->i", bits, self._of_columns))
        self._column_hashes = self._column_hashes + np.einsum("ij,i->j", bits, of_rows)

    def _see_masks(self, rows: NDArray[np.float64], likeliest: NDArray[np.float64]) -> None:
        """Count rows whose lowest number lies far below all others."""
        if rows.shape[1] < 3:
            return
        rows, likeliest = (each[(likeliest[:, 0] - rows.min(1)) > APART] for each in (rows, likeliest))
        lowest, second = np.partition(rows, 1, axis=1)[:, :2].T
        with np.errstate(invalid="ignore"):  # rows of −∞ but for one number
            alone = second - lowest > np.maximum(APART, ALONE * (likeliest[:, 0] - second))
        self._alone.update(rows[alone].argmin(1).tolist())

    def _see_subnormal(self, rows: NDArray[np.float64]) -> None:
        """Count logarithms of float32's smallest probabilities, which have lost digits."""
        least, most = math.log(SUBNORMAL / 2), math.log(MOST_STEPS * SUBNORMAL)
        steps = np.exp(rows[(rows > least) & (rows < most)] - math.log(SUBNORMAL))
        self._subnormal += int((np.abs(steps - np.rint(steps)) <= STEP_ERROR * steps).sum())
        self._tiny += steps.size

    def _see_cut(self, rows: NDArray[np.float64], likeliest: NDArray[np.float64]) -> None:
        """Count rows with many entries at their lowest number; tokens that are masked in them are infinite."""
        lowest = rows.min(1, keepdims=True)
        at_lowest = rows <= lowest + NEAR * (likeliest - lowest)
        cut = at_lowest.sum(1) >= max(2, CUT * rows.shape[1])
        self._cut = self._cut + at_lowest[cut].sum(0)
        self._rows_cut += int(cut.sum())

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
        fitting = set() if self.dtypes == {WHOLE} else self._fitting(sample)
        if self._language and self.dtypes != {WHOLE}:  # columns of several types, widened to one
            fitting |= self._fitting(sample.T)
        narrow = max({stored, *fitting}, key=EPS.__getitem__)
        if 0 < self.largest < TINY.get(stored, 0.0):
            raise MatrixError(
                f"the largest number, {self.largest:.3g}, is subnormal in {stored}: its digits were lost; multiply the "
                "matrix by a power of two before it is stored, no rank depends on the scale"
            )
        judged = replace(precision(narrow, assumed=True), tested=bool(sample.size), distinct=self._repeated)
        if not sample.size:
            return judged
        if _counting(sample).all() if self._language else _is_whole(sample):
            return replace(judged, rounding=self._rounding(sample, judged))
        tested, unseen = can_show(sample) if self._language else True, None
        if not self._language:
            finer = judged.value < EPS["bfloat16"]
            unseen = "bfloat16" if finer and not can_show_grid(sample, eps=judged.value) else None
        elif tested and judged.value == EPS["float64"] and not can_show(sample, "float32"):
            unseen = "float32"
        return replace(judged, rounding=self._rounding(sample, judged), tested=tested, unseen=unseen)

    def _rounding(self, sample: NDArray[np.float64], judged: Precision) -> Rounding | None:
        """Return the coarsest rounding, before or after normalization, that the sample shows."""
        whole, stored = _is_whole(sample), judged.dtype or "float64"
        if stored not in ("float64", "float32"):
            step = judged.value * float(np.sqrt(np.mean(sample**2)))  # of the entries themselves
            return Rounding(step, 1.0, stored) if self._language else None
        if whole and not self._language:
            return None
        printed = Rounding(1.0, 1.0, "whole numbers") if whole else _printed(sample, stored)
        size = float(np.quantile(np.abs(sample), 0.9))
        eps = max(judged.value, printed.step / size) if printed and size else judged.value
        before = find_rounding(sample, eps=eps, structured=not self._language)
        if before is not None and not self._language and EPS.get(before.dtype or "", 1.0) <= judged.value:
            before = None  # the type's own grid
        seen = [rounding for rounding in (printed, before) if rounding is not None]
        return max(seen, key=lambda rounding: rounding.noise(sample.shape), default=None)

    @property
    def _repeated(self) -> tuple[int, int] | None:
        """Number of different rows and columns, or ``None`` if all are different."""
        hashes = np.concatenate(self._row_hashes), np.asarray(self._column_hashes)
        rows, columns = (len(np.unique(each)) for each in hashes)
        return None if (rows, columns) == tuple(map(len, hashes)) else (rows, columns)

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
        return self._constant() or self._floor() or self._scattered_masks() or self._truncation() or self._underflow()

    def _constant(self) -> str:
        """Return a sentence on rows that hold one number, beside others that do not, or ''."""
        sample = np.concatenate(self._sample)
        sampled, constant = len(sample), int((sample == sample[:, :1]).all(1).sum())
        if not self._language or constant in (0, sampled):
            return ""
        return (
            f"{constant:,} of {sampled:,} sampled rows hold one number, the same for every token, as rows that were "
            "never filled do: leave out such rows"
        )

    def _floor(self) -> str:
        """Return a sentence on numbers of probability 0 that stand for a mask or for missing values, or ''."""
        floors: Counter[float] = Counter()
        several, masked = 0, self.masked
        for (lowest, column, is_several), count in self._floors.items():
            if not masked[column]:
                floors[lowest] += count
                several += count * is_several
        least = max(2, HALF * floors.total())
        said = (
            f"{-FLOOR:g} nats or more below their largest: a mask or a floor, which adds directions of its own; leave "
        )
        said += "out such tokens, or set them to -inf"
        for floor, count in floors.most_common(1):
            if count >= least:
                return f"the lowest number of {count:,} rows is {floor:g}, {said}"
        return f"the lowest number of {several:,} rows stands for several tokens, {said}" if several >= least else ""

    def _scattered_masks(self) -> str:
        """Return a sentence on single tokens that lie far below all others, another one in each row, or ''."""
        masked = self.masked
        columns = [column for column in self._alone if not masked[column]]
        if len(columns) < 2:
            return ""
        count = sum(self._alone[column] for column in columns)
        return (
            f"one token of {count:,} rows lies {APART:g} nats or more below all others, and not always the same one: a "
            "mask adds directions of its own; leave out such tokens, or set them to -inf"
        )

    def _underflow(self) -> str:
        """Return a sentence on logarithms of subnormal probabilities of float32, or ''."""
        if self._subnormal < FEWEST or self._subnormal < FITTING * self._tiny:
            return ""
        return (
            f"{self._subnormal:,} entries are logarithms of the smallest probabilities of float32, which have lost "
            "their digits: take log_softmax of the logits, not the logarithm of their softmax"
        )

    def _truncation(self) -> str:
        """Return a sentence on rows that were cut off at their lowest number in columns that differ, or ''."""
        counts, sampled = np.asarray(self._cut), sum(map(len, self._sample))
        differing = counts[counts < self._rows_cut].sum()  # tokens of equal embeddings are equal in every row
        if self._rows_cut < max(2, HALF * sampled) or differing < self._rows_cut:
            return ""
        return (
            f"about {counts.sum() / self._rows_cut:,.0f} of a row's {counts.size:,} entries are its lowest number "
            f"(in {self._rows_cut:,} of {sampled:,} sampled rows): a truncation (top-k, top-p) or a floor replaced "
            "them, and what they were cannot be told"
        )

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


def _is_whole(values: NDArray[np.float64]) -> bool:
    return bool((values == np.rint(values)).all())


def _counting(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return (values == np.rint(values)) & (np.abs(values) < COUNTING)


def _printed(values: NDArray[np.float64], stored: str) -> Rounding | None:
    """Return the rounding of numbers that a format cut to some decimals or digits: those of few may be exact."""
    sizes = np.abs(values[values != 0])
    seen = SEEN_STEPS * EPS[stored]
    powers = 10.0 ** np.floor(np.log10(sizes))
    found = []
    for places in range(1, MOST_DECIMALS + 1):
        if 10.0**-places <= seen * sizes.max():
            break
        if (np.abs(sizes.round(places) - sizes) <= EPS[stored] * sizes).all():
            if np.median(sizes) * 10.0**places >= COUNTING:
                found.append(Rounding(10.0**-places, 1.0, f"{places} decimals"))
            break
    for digits in range(1, MOST_DECIMALS + 1):
        if 10.0**-digits <= seen:
            break
        if (np.abs((sizes / powers).round(digits - 1) * powers - sizes) <= 2 * EPS[stored] * sizes).all():
            if digits >= FEWEST_DIGITS:
                step = float(np.sqrt(np.mean((powers * 10.0 ** (1 - digits)) ** 2)))
                found.append(Rounding(step, 1.0, f"{digits} significant digits"))
            break
    return max(found, key=lambda rounding: rounding.step, default=None)


def _fits(values: NDArray[np.float64], name: str) -> NDArray[np.bool_]:
    """Return which float64 values a narrower type represents exactly."""
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
        if name == "float16":
            return np.asarray(values.astype(np.float16).astype(np.float64) == values)
    exact = single.astype(np.float64) == values
    return exact & (single.view(np.uint32) & 0xFFFF == 0) if name == "bfloat16" else exact
