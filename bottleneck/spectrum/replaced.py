"""Detection of entries that stand for something else than log-probabilities: masks, floors and truncations."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from .noise import FEWEST
from .precision import EPS
from .rules import MARGIN

MASK = -9e3
"""A token this many nats below the likeliest one in every context has been masked, as by logits of -1e4: no model's
roundoff allows less than e^-104 in float32, and float64 ends at -745."""
APART = 50.0
"""A row's lowest number is a mask if it lies so many nats below all others, and farther than these are apart."""
RARE = 0.01
"""Share below which something is an exception: of a row's entries at its lowest number, of rows that fit a type."""
NEAR = 1e-3
"""Part of the range of all numbers: of continuous ones, no `FEWEST` lie so near to the lowest one (at most 2 rows and
columns did in 300 matrices; at least 8 of each at a floor)."""

STEP = float(np.finfo(np.float32).smallest_subnormal)
"""Step of float32's smallest numbers, the subnormal ones."""
ZERO = math.log(STEP / 2)
"""Logarithm of the largest probability that float32 rounds to 0. The same number this far below the likeliest one of
many rows is a mask, or a floor for missing values."""
STEP_ERROR = -math.log(STEP) * EPS["float32"]
"""Relative error of such a number that was computed from its float32 logarithm."""


class Replaced:
    """Counts the entries of logits or log-probabilities that replaced others, block by block."""

    def __init__(self) -> None:
        self._below_likeliest: NDArray[np.float64] | float = -np.inf
        self._hidden: NDArray[np.int64] | int = 0
        self._zeros: Counter[tuple[float, int, bool]] = Counter()  # a row's lowest number, its column, several times?
        self._alone: Counter[int] = Counter()  # rows whose lowest number is a mask, by its column
        self._multiples = self._tiny = 0  # tiny probabilities that are multiples of float32's step, and all of them
        self._cut: NDArray[np.int64] | int = 0  # sampled rows that were cut off at their lowest number, by column
        self._rows_cut = self._sampled = self._constant = 0
        self._highest, self._lowest = -np.inf, np.inf
        self._lowest_of_rows: list[NDArray[np.float64]] = []
        self._lowest_of_columns: NDArray[np.float64] | float = np.inf  # of rows near the lowest number
        self._log_sums: list[NDArray[np.float64]] = []  # of the sampled rows

    def watch(self, rows: NDArray[np.float64], likeliest: NDArray[np.float64], lowest: NDArray[np.float64]) -> None:
        """Count what the next rows hold.

        Args:
            rows: (n, M), finite or −∞.
            likeliest: (n,), the largest number of each row.
            lowest: (n,), the smallest finite one.
        """
        self._see_columns(rows, likeliest[:, None])
        self._highest, self._lowest = max(self._highest, likeliest.max()), min(self._lowest, lowest.min())
        self._lowest_of_rows.append(lowest)
        if (near := lowest <= self.end).any():
            finite = np.where(np.isneginf(rows[near]), np.inf, rows[near])
            self._lowest_of_columns = np.minimum(self._lowest_of_columns, finite.min(0))
        with np.errstate(invalid="ignore"):  # a row of −∞ alone
            low = likeliest - lowest > APART
        if low.any():
            self._see_low(rows[low], likeliest[low, None], lowest[low])

    @property
    def end(self) -> float:
        """The largest number that is near the lowest one."""
        return self._lowest + NEAR * (self._highest - self._lowest)

    def _see_columns(self, rows: NDArray[np.float64], likeliest: NDArray[np.float64]) -> None:
        """See which columns are masked in all rows so far, and in these."""
        below = np.broadcast_to(self._below_likeliest, rows.shape[1]).copy()
        columns = np.flatnonzero(below < MASK)
        if columns.size:
            with np.errstate(invalid="ignore"):  # a row of −∞ alone
                below[columns] = np.maximum(below[columns], (rows[:, columns] - likeliest).max(0, initial=-np.inf))
        self._below_likeliest = below

    def _see_low(self, rows: NDArray[np.float64], likeliest: NDArray[np.float64], lowest: NDArray[np.float64]) -> None:
        """Count what rows with numbers far below their largest one, (n, 1), hold."""
        infinite = np.isneginf(rows)
        finite = np.where(infinite, np.inf, rows)
        self._hidden = self._hidden + ((rows - likeliest < MASK) & ~infinite).sum(0)
        columns, second = finite.argmin(1), np.partition(finite, 1)[:, 1]
        with np.errstate(invalid="ignore"):  # rows of −∞ but for one number
            alone = (second - lowest > np.maximum(APART, likeliest[:, 0] - second)) & (rows.shape[1] > 2)
        self._alone.update(columns[alone].tolist())
        zero = lowest - likeliest[:, 0] < ZERO
        each = (lowest[zero], columns[zero], second[zero] == lowest[zero])
        self._zeros.update(zip(*(array.tolist() for array in each), strict=True))
        # Up to here a number looks like a multiple of the step only rarely.
        most = math.log(RARE / (2 * STEP_ERROR) * STEP)
        steps = np.exp(rows[(rows > ZERO) & (rows < most)] - math.log(STEP))
        self._multiples += int((np.abs(steps - np.rint(steps)) <= STEP_ERROR * steps).sum())
        self._tiny += steps.size

    def sample(self, rows: NDArray[np.float64], likeliest: NDArray[np.float64], log_sums: NDArray[np.float64]) -> None:
        """Count sampled rows that hold one number, and those with many entries at their lowest number.

        Args:
            rows: (n, M), finite or −∞.
            likeliest: (n, 1), the largest number of each row.
            log_sums: (n,), their log Σ exp.
        """
        self._see_columns(rows, likeliest)
        self._log_sums.append(log_sums)
        if not len(rows):
            return
        rows = np.where(rows - likeliest < MASK, np.inf, rows)  # without masked tokens
        at_lowest = rows == rows.min(1, keepdims=True)
        cut = at_lowest.sum(1) >= max(2, RARE * rows.shape[1])
        self._cut = self._cut + at_lowest[cut].sum(0)
        self._rows_cut += int(cut.sum())
        tokens = np.isfinite(rows).sum(1)
        self._constant += int(((tokens > 1) & ((rows == likeliest).sum(1) == tokens)).sum())
        self._sampled += len(rows)

    @property
    def masked(self) -> NDArray[np.bool_]:
        """Whether each column is a token that every row masks by a large negative number, (M,)."""
        below = np.asarray(self._below_likeliest)
        return np.isfinite(below) & (below < MASK)

    def sentence(self, row_hashes: NDArray[np.uint64], column_hashes: NDArray[np.uint64], eps: float | None) -> str:
        """Return what was replaced, or ''.

        Args:
            row_hashes: (T,), equal for equal rows.
            column_hashes: (M,), equal for equal columns.
            eps: roundoff of the entries; ``None`` if a rounding makes numbers equal.
        """
        hidden = int(np.where(self.masked, 0, self._hidden).sum())
        if hidden:
            return (
                f"{hidden:,} entries lie {-MASK:,.0f} nats or more below their row's largest: masks of single contexts "
                "hide what the other entries show"
            )
        if self._constant not in (0, self._sampled):
            return (
                f"{self._constant:,} of {self._sampled:,} sampled rows hold one number, the same for every token, as "
                "rows that were never filled do: leave out such rows"
            )
        why = self._masks() or self._truncation(column_hashes) or self._underflow()
        if why or eps is None:
            return why
        return self._floor(row_hashes, column_hashes) or self._added(eps, len(column_hashes))

    def _masks(self) -> str:
        """Return a sentence on numbers of probability 0 that are equal, or of single tokens, or ''."""
        masked = self.masked
        zeros = {key: count for key, count in self._zeros.items() if not masked[key[1]]}
        alone = [count for column, count in self._alone.items() if not masked[column]]
        floors: Counter[float] = Counter()
        for (lowest, _, _), count in zeros.items():
            floors[lowest] += count
        several = sum(count for (_, _, is_several), count in zeros.items() if is_several)
        least, where = (
            max(2, sum(zeros.values()) / 2),
            f"{-ZERO:.0f} nats or more below their largest: a mask or a floor",
        )
        advice = "adds directions of its own; leave out such tokens, or set them to -inf"
        for floor, count in floors.most_common(1):
            if count >= least:
                return f"the lowest number of {count:,} rows is {floor:g}, {where}, which {advice}"
        if several >= least:
            return f"the lowest number of {several:,} rows stands for several tokens, {where}, which {advice}"
        if len(alone) < 2:
            return ""
        return (
            f"one token of {sum(alone):,} rows lies {APART:g} nats or more below all others, and not always the same "
            f"one: a mask {advice}"
        )

    def _underflow(self) -> str:
        """Return a sentence on logarithms of subnormal probabilities of float32, or ''."""
        if not self._tiny or self._multiples < self._tiny:
            return ""
        return (
            f"{self._tiny:,} entries are logarithms of the smallest probabilities of float32, which have lost "
            "their digits: take log_softmax of the logits, not the logarithm of their softmax"
        )

    def _truncation(self, column_hashes: NDArray[np.uint64]) -> str:
        """Return a sentence on rows that were cut off at their lowest number, in columns that are not equal, or ''."""
        counts = np.asarray(self._cut)
        different = counts[np.unique(column_hashes, return_index=True)[1]]  # tokens of equal embeddings are equal
        differing = different[different < self._sampled].sum()
        if self._rows_cut < max(2, self._sampled / 2) or differing < 2 * self._rows_cut:
            return ""
        return (
            f"about {counts.sum() / self._rows_cut:,.0f} of a row's {counts.size:,} entries are its lowest number "
            f"(in {self._rows_cut:,} of {self._sampled:,} sampled rows): a truncation (top-k, top-p) or a floor "
            "replaced them, and what they were cannot be told"
        )

    def _floor(self, row_hashes: NDArray[np.uint64], column_hashes: NDArray[np.uint64]) -> str:
        """Return a sentence on a floor that few entries reach, or ''.

        ``log(p.clamp_min(1e-12))`` makes entries equal, ``log(p + 1e-12)`` moves them towards the floor.
        """
        if self.masked.any():
            return ""
        near = np.concatenate(self._lowest_of_rows) <= self.end, np.asarray(self._lowest_of_columns) <= self.end
        rows, columns = (
            len(np.unique(hashes[some])) for hashes, some in zip((row_hashes, column_hashes), near, strict=True)
        )
        if min(rows, columns) < FEWEST:
            return ""
        return (
            f"entries of {rows:,} rows and {columns:,} tokens crowd at the lowest number, {self._lowest:.6g}: a floor, "
            "which adds directions of its own; take log_softmax of the logits"
        )

    def _added(self, eps: float, tokens: int) -> str:
        """Return a sentence on a number that was added to all probabilities, as in ``log(p + 1e-8)``, or ''.

        The probabilities of every row then sum to 1 plus M times the number, and none is below it.
        """
        sums = np.concatenate(self._log_sums)
        if len(sums) < FEWEST or not 0 < (excess := float(np.median(sums))) < 1:
            return ""
        added = math.expm1(excess) / tokens
        if excess < MARGIN * max(float(sums.std()), eps) or self._lowest < math.log(added) * (1 + eps):
            return ""
        return (
            f"each row's probabilities sum to 1 + {excess:.2g}, and none is below {added:.2g}: as after log(p + "
            f"{added:.2g}), which adds directions of its own; take log_softmax of the logits"
        )
