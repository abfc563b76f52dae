"""The entries of rows of log-probabilities that say what a model gave: without those that stand for something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from ..sources import PartialSource, Source
from ..spectrum.noise import FEWEST, decimal_step, different, evenly
from .span import Mask, Matrix

MOST_ENTRIES, FEWEST_ROWS = 1 << 23, 16
"""Entries that are in memory, of evenly spaced rows, and the rows that are taken whatever their size."""
MOST_PARTIAL = 32
"""Rows with more than d unseen tokens that are solved: each has a factorization of its own."""
EXTRA = 64
"""Rows and tokens beyond what an output layer explains, which show that noise is added."""
OFTEN, NEXT = 10, 5
"""How many times more often than the median of its next numbers, so many on either side, a number occurs that replaced
others: a number rounded to a grid occurs about as often as those beside it."""


@dataclass(frozen=True)
class Entries:
    """Rows, (n, M), which entries are seen, the most by which each is off, and the bias that was subtracted, (M,)."""

    rows: Matrix
    seen: Mask
    error: Matrix
    bias: Matrix
    wide: Matrix | None = None
    """More rows of fewer tokens, all seen, where ``rows`` are too few to have more than d directions."""
    noisy: bool = False
    """Whether ``error`` is that of noise that `precision` sees, coarser than the type, behind the directions."""

    @property
    def replaced(self) -> bool:
        """Whether rows have more unseen entries than their lowest number: what they add hides the noise of others."""
        return bool(((~self.seen).sum(1) > 1).any())

    @classmethod
    def of(cls, source: Source, W: tuple[int, int], *, noise: bool = True) -> Entries | None:
        """Return up to `MOST_ENTRIES` of a source, evenly spaced and different rows that show d + 2 tokens or more.

        ``W`` is (M, d), the shape of the output embeddings, whose M may be another one than the source's.

        Their errors are those of the type and of the grid that they show, and with ``noise`` those that `precision`
        sees behind their directions.
        """
        (T, M), d = source.shape, W[1]
        noise = noise and d + 1 + FEWEST < T
        chosen = evenly(T, max(FEWEST_ROWS, MOST_ENTRIES // M))
        start, parts, wide = 0, [], _Wide(len(chosen), T, min(M, W[0]), d)
        for values, seen, error in _blocks(source, noise=noise):
            some = chosen[(chosen >= start) & (chosen < start + len(values))] - start
            wide.add(start, values, seen)
            highest = np.where(seen[some], values[some], -np.inf).max(1, keepdims=True)
            varied = np.any((values[some] < highest) & seen[some], 1)
            some, start = some[varied & (seen[some].sum(1) >= d + 2)], start + len(values)
            parts.append((values[some], seen[some], np.broadcast_to(error, values.shape)[some]))
        values, seen, error = (np.concatenate(each) for each in zip(*parts, strict=True))
        partial = (~seen).sum(1) > d
        some = different(values) & (~partial | (np.cumsum(partial) <= MOST_PARTIAL))
        if not some.any():
            return None
        noisy = noise and not isinstance(source, PartialSource) and source.precision.coarse is not None
        found = cls(values[some], seen[some], error[some], np.zeros(M), wide.rows(), noisy)
        return cls.of(source, W, noise=False) if noise and found.replaced else found

    def without(self, bias: Matrix) -> Entries:
        """Return the entries of the first tokens less their bias, (m,)."""
        m = len(bias)
        rows, seen, error = self.rows[:, :m] - bias, self.seen[:, :m], self.error[:, :m]
        return replace(self, rows=rows, seen=seen, error=error, bias=bias - bias.mean())

    def pairs(self, moved: Matrix) -> tuple[Matrix, Mask, Matrix]:
        """Return each row less the next one, in which what is common to all rows has gone.

        ``moved`` is what roundoff makes of the entries of each row, (n,).
        """
        seen = self.seen & np.roll(self.seen, -1, 0)
        error = np.broadcast_to((moved + np.roll(moved, -1))[:, None], seen.shape)
        with np.errstate(invalid="ignore"):
            return np.where(seen, self.rows - np.roll(self.rows, -1, 0), 0.0), seen, error


class _Wide:
    """Collects `Entries.wide` from blocks of rows."""

    def __init__(self, chosen: int, T: int, M: int, d: int) -> None:
        n, m = min(T, d + 1 + EXTRA), min(M, 2 * d + EXTRA)
        self._needed = chosen <= d + 1 < n < m and n * m <= MOST_ENTRIES
        self._chosen, self._tokens = evenly(T, n), evenly(M, m)
        self._parts: list[Matrix] = []

    def add(self, start: int, values: Matrix, seen: Mask) -> None:
        """Take rows, (n, M), the first of which has the number ``start``."""
        if self._needed:
            some = self._chosen[(self._chosen >= start) & (self._chosen < start + len(values))] - start
            at = np.ix_(some, self._tokens)
            self._parts.append(np.where(seen[at], values[at], np.nan))

    def rows(self) -> Matrix | None:
        """Return different rows without tokens that one of them does not show."""
        if not self._needed:
            return None
        rows = np.concatenate(self._parts)
        rows = rows[:, ~np.isnan(rows).any(0)]
        return rows[different(rows)]


def _blocks(rows: Source, *, noise: bool) -> Iterator[tuple[Matrix, Mask, Matrix]]:
    """Yield the rows in blocks, (n, M) each: numbers, whether each is seen, and the most by which it is off.

    A row's lowest number, and numbers that occur far more often than others, stand for other ones and are unseen.
    """
    if isinstance(rows, PartialSource):
        for part in rows.parts():
            yield part.log_probs, part.seen, part.error
        return
    eps = rows.precision
    inferred = eps.noise.step if noise and eps.noise else 0.0
    rounded = rows.entries() if rows.description["kind"] == "logits" else repeat(None)  # before they are normalized
    for block, logits in zip(rows.blocks(), rounded, strict=False):
        values = block.log_probs.astype(np.float64)
        if logits is not None:  # normalization would round them again
            values = np.where(np.isfinite(values), logits, -np.inf).astype(np.float64)
        seen = np.isfinite(values) & (values > np.where(np.isfinite(values), values, np.inf).min(1, keepdims=True))
        for row, tokens in zip(values, seen, strict=True):
            tokens[tokens] = ~_repeated(row[tokens])
        steps = [_step(row[tokens], inferred) for row, tokens in zip(values, seen, strict=True)]
        least = eps.size or 0.0 if logits is None else np.sqrt(np.mean(values[seen] ** 2)) if seen.any() else 0.0
        size = np.abs(values).clip(min=least)  # that of logits without masks
        yield values, seen, (eps.value * size + np.array(steps)[:, None]) / 2


def _repeated(values: Matrix) -> Mask:
    """Return which numbers of a row occur far more often than the numbers next to them."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    if counts.max(initial=0) < OFTEN:
        return np.zeros(len(values), bool)
    beside = np.pad(counts, NEXT, mode="reflect")
    around = np.median(np.lib.stride_tricks.sliding_window_view(beside, 2 * NEXT + 1), 1)
    return np.asarray((counts >= OFTEN * around)[places])


def _step(values: Matrix, inferred: float) -> float:
    """Return the step of the grid that the numbers of a row, (m,), may lie on.

    It is the median gap where most numbers are repeated, and elsewhere the inferred step, but at most the mean gap of
    different numbers: a coarser grid would hold fewer.
    """
    different, inferred = np.unique(values), max(inferred, decimal_step(values))
    if len(different) < 2:
        return 0.0
    gaps = np.diff(different)
    step = min(inferred, float(gaps.mean()))
    return max(step, float(np.median(gaps))) if len(different) < len(values) / 2 else step
