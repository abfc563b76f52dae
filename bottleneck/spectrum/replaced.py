"""Detection of entries that stand for something else than log-probabilities: masks, floors and truncations."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from .noise import FEWEST

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
WHOLE_STEPS, CHANCE = 0.9, 1e-3
"""Share of the smallest probabilities that must be whole steps of float32's subnormal numbers, and the largest
probability that all of these are whole by chance."""
HALF = 0.5
"""Share of the rows with so low a number that must agree on it."""
LOG_EPSILONS = (*(10.0**-k for k in range(5, 46)), *(2.0**-k for k in (23, 52, 126, 149, 1022)))
"""Numbers that code puts under or adds to a probability before its logarithm is taken."""
LEAST_TIES, NEARBY = 3, 0.01
"""Entries that share the matrix's lowest number, or lie within so many nats above one of `LOG_EPSILONS`, if it is a
floor: of continuous numbers the lowest one stands alone."""
MOST_PLACES = 1000
"""Entries about the lowest number that are kept."""
STEADY, NEAR_EPSILON = 8.0, 0.03
"""How many standard deviations log Σ P lies above 0 if a number was added to all probabilities: a plain sum in float32
reaches 4. And the relative error of that number, as the sums show it."""


class Replaced:
    """Counts the entries of logits or log-probabilities that replaced others, block by block."""

    def __init__(self) -> None:
        self._rows = 0
        self._below_likeliest: NDArray[np.float64] | float = -np.inf
        self._hidden: NDArray[np.int64] | int = 0
        self._floors: Counter[tuple[float, int, bool]] = Counter()  # a row's lowest number, its column, several times?
        self._alone: Counter[int] = Counter()  # rows whose lowest number is a mask, by its column
        self._subnormal = self._tiny = 0  # probabilities of whole steps of float32, and all of so few steps
        self._log_chance = 0.0  # log of the probability that they are whole by chance
        self._cut: NDArray[np.int64] | int = 0  # sampled rows that were cut off at their lowest number, by column
        self._rows_cut = self._sampled = self._constant = 0
        self._lowest = np.inf
        self._near_lowest: list[tuple[float, int, int]] = []  # entries near that number, with their row and column
        self._log_sums: list[NDArray[np.float64]] = []  # of the sampled rows

    def watch(self, rows: NDArray[np.float64], likeliest: NDArray[np.float64], lowest: NDArray[np.float64]) -> None:
        """Count what the next rows hold.

        Args:
            rows: (n, M), finite or −∞.
            likeliest: (n,), the largest number of each row.
            lowest: (n,), the smallest finite one.
        """
        self._see_columns(rows, likeliest[:, None])
        self._see_lowest(rows, lowest)
        with np.errstate(invalid="ignore"):  # a row of −∞ alone
            apart = likeliest - lowest
        if apart.max() > APART:
            some = apart > APART
            self._see_low(rows[some], likeliest[some, None], lowest[some, None])
        self._rows += len(rows)

    def _see_columns(self, rows: NDArray[np.float64], likeliest: NDArray[np.float64]) -> None:
        """See which columns are masked in all rows so far, and in these."""
        below = np.broadcast_to(self._below_likeliest, rows.shape[1]).copy()
        columns = np.flatnonzero(below < MASK)
        if columns.size:
            with np.errstate(invalid="ignore"):  # a row of −∞ alone
                below[columns] = np.maximum(below[columns], (rows[:, columns] - likeliest).max(0, initial=-np.inf))
        self._below_likeliest = below

    def _see_low(self, rows: NDArray[np.float64], likeliest: NDArray[np.float64], lowest: NDArray[np.float64]) -> None:
        """Count what rows with numbers far below their largest one hold; all arguments have two dimensions."""
        infinite = np.isneginf(rows)
        finite = np.where(infinite, np.inf, rows)
        self._hidden = self._hidden + ((rows - likeliest < MASK) & ~infinite).sum(0)
        low = (lowest - likeliest < FLOOR)[:, 0]
        if low.any():
            several = (finite[low] == lowest[low]).sum(1) > 1
            columns = finite[low].argmin(1)
            self._floors.update(zip(lowest[low, 0].tolist(), columns.tolist(), several.tolist(), strict=True))
        self._see_masks(finite, likeliest)
        self._see_subnormal(rows)

    def _see_lowest(self, rows: NDArray[np.float64], lowest: NDArray[np.float64]) -> None:
        """Keep the entries within `NEARBY` of the matrix's lowest number."""
        if (least := float(lowest.min())) < self._lowest:
            self._lowest = least
            self._near_lowest = [entry for entry in self._near_lowest if entry[0] <= least + NEARBY]
        if least <= self._lowest + NEARBY and len(self._near_lowest) < MOST_PLACES:
            for row in np.flatnonzero(lowest <= self._lowest + NEARBY):
                near = np.flatnonzero((rows[row] <= self._lowest + NEARBY) & (rows[row] > -np.inf)).tolist()
                self._near_lowest += [(float(rows[row, column]), self._rows + int(row), column) for column in near]
            del self._near_lowest[2 * MOST_PLACES :]

    def _see_masks(self, rows: NDArray[np.float64], likeliest: NDArray[np.float64]) -> None:
        """Count rows whose lowest number lies far below all others."""
        if rows.shape[1] < 3:
            return
        lowest, second = np.partition(rows, 1, axis=1)[:, :2].T
        with np.errstate(invalid="ignore"):  # rows of −∞ but for one number
            alone = second - lowest > np.maximum(APART, ALONE * (likeliest[:, 0] - second))
        self._alone.update(rows[alone].argmin(1).tolist())

    def _see_subnormal(self, rows: NDArray[np.float64]) -> None:
        """Count logarithms of float32's smallest probabilities, which have lost digits."""
        least, most = math.log(SUBNORMAL / 2), math.log(MOST_STEPS * SUBNORMAL)
        steps = np.exp(rows[(rows > least) & (rows < most)] - math.log(SUBNORMAL))
        whole = steps[np.abs(steps - np.rint(steps)) <= STEP_ERROR * steps]
        self._subnormal += whole.size
        self._tiny += steps.size
        self._log_chance += float(np.log(2 * STEP_ERROR * whole).sum())

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
        lowest = rows.min(1, keepdims=True)
        at_lowest = rows <= lowest + NEAR * (likeliest - lowest)
        cut = at_lowest.sum(1) >= max(2, CUT * rows.shape[1])
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
        why = self._floor() or self._scattered_masks() or self._truncation(column_hashes) or self._underflow()
        if why or eps is None:
            return why
        return self._low_floor(row_hashes, column_hashes, eps) or self._added(eps, len(column_hashes))

    def _floor(self) -> str:
        """Return a sentence on numbers of probability 0 that stand for a mask or for missing values, or ''."""
        floors: Counter[float] = Counter()
        several, masked = 0, self.masked
        for (lowest, column, is_several), count in self._floors.items():
            if not masked[column]:
                floors[lowest] += count
                several += count * is_several
        least = max(2, HALF * floors.total())
        advice = (
            f"{-FLOOR:g} nats or more below their largest: a mask or a floor, which adds directions of its own; leave "
            "out such tokens, or set them to -inf"
        )
        for floor, count in floors.most_common(1):
            if count >= least:
                return f"the lowest number of {count:,} rows is {floor:g}, {advice}"
        return f"the lowest number of {several:,} rows stands for several tokens, {advice}" if several >= least else ""

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
        if self._log_chance > math.log(CHANCE) or self._subnormal < WHOLE_STEPS * self._tiny:
            return ""
        return (
            f"{self._subnormal:,} entries are logarithms of the smallest probabilities of float32, which have lost "
            "their digits: take log_softmax of the logits, not the logarithm of their softmax"
        )

    def _truncation(self, column_hashes: NDArray[np.uint64]) -> str:
        """Return a sentence on rows that were cut off at their lowest number, in columns that are not equal, or ''."""
        counts = np.asarray(self._cut)
        different = counts[np.unique(column_hashes, return_index=True)[1]]  # tokens of equal embeddings are equal
        differing = different[different < self._sampled].sum()
        if self._rows_cut < max(2, HALF * self._sampled) or differing < 2 * self._rows_cut:
            return ""
        return (
            f"about {counts.sum() / self._rows_cut:,.0f} of a row's {counts.size:,} entries are its lowest number "
            f"(in {self._rows_cut:,} of {self._sampled:,} sampled rows): a truncation (top-k, top-p) or a floor "
            "replaced them, and what they were cannot be told"
        )

    def _low_floor(self, row_hashes: NDArray[np.uint64], column_hashes: NDArray[np.uint64], eps: float) -> str:
        """Return a sentence on a floor that few entries reach, or ''.

        ``log(p.clamp_min(1e-12))`` makes entries equal, ``log(p + 1e-12)`` moves them towards the floor.
        """
        if not self._near_lowest or self.masked.any():
            return ""
        least = math.exp(min(max(self._lowest, -745.0), 709.0))
        epsilon = _log_epsilon(least, NEARBY)
        exact = epsilon is not None and abs(math.log(epsilon) - self._lowest) <= 2 * eps * abs(self._lowest)
        end = math.log(epsilon) + NEARBY if epsilon is not None and (exact or least > epsilon) else self._lowest
        near = {(row_hashes[row], column_hashes[column]) for value, row, column in self._near_lowest if value <= end}
        if len(near) < LEAST_TIES and not exact:
            return ""
        count = sum(value <= end for value, *_ in self._near_lowest)
        many = f"{count:,} or more" if count >= MOST_PLACES else f"{count:,}"
        floor = f"log({epsilon:g})" if end > self._lowest else f"{self._lowest:.6g}"
        return (
            f"the lowest of the numbers, {many} of them, lie at a floor of {floor}, which adds directions of its own: "
            "take log_softmax of the logits"
        )

    def _added(self, eps: float, tokens: int) -> str:
        """Return a sentence on a number that was added to all probabilities, as in ``log(p + 1e-8)``, or ''.

        The probabilities of every row then sum to 1 plus M times the number, and none is below it.
        """
        sums = np.concatenate(self._log_sums)
        if len(sums) < FEWEST or not 0 < (excess := float(np.median(sums))) < 1:
            return ""
        if excess < STEADY * max(float(sums.std()), eps):
            return ""
        epsilon = _log_epsilon(math.expm1(excess) / tokens, NEAR_EPSILON)
        if epsilon is None or self._lowest < math.log(epsilon) * (1 + eps):
            return ""
        return (
            f"each row's probabilities sum to 1 + {excess:.2g}, and none is below {epsilon:g}: as after log(p + "
            f"{epsilon:g}), which adds directions of its own; take log_softmax of the logits"
        )


def _log_epsilon(number: float, error: float) -> float | None:
    """Return the number of `LOG_EPSILONS` that a number equals up to a relative error."""
    return next((epsilon for epsilon in LOG_EPSILONS if abs(number - epsilon) <= error * epsilon), None)
