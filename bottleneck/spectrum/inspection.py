"""Inspect the entries of a matrix of unknown origin in one pass, before it is decomposed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import MatrixError
from .blocks import WHOLE, native_dtype
from .noise import COLUMNS, FEWEST, ROWS, decimal_step, different, evenly, find_noise
from .precision import EPS, ROUNDINGS, Noise, Precision, precision
from .replaced import MASK, RARE, Replaced
from .rules import MARGIN, tolerance

LEAST_ROW_SUM = 1e-10
"""Allowed error of log Σ P of a row of any precision, in nats: that of 10⁵ terms added one by one, as
`numpy.logaddexp.reduce` adds them, reaches 10⁻¹¹ in float64."""
AT_ONCE, LEAST_ROWS = 1 << 17, 16
"""Entries that are inspected at once, which fit in a cache in float64, and the least number of rows."""


def allowed_log_sum(eps: Precision, vocab: int) -> float:
    """Return the largest |log Σ P| of a row, in nats, that its precision explains; steps of δ move it by δ/2.

    The log-partition, and the sum of the probabilities that it makes, each have errors of `ROUNDINGS` eps.
    """
    steps = eps.coarse.step / 2 if eps.coarse and math.isfinite(eps.coarse.step) else 0.0
    return max(LEAST_ROW_SUM, 2 * ROUNDINGS * eps.value * max(1.0, math.log(vocab)), steps)


class Inspection:
    """Infers the precision of a matrix from its blocks, the size of its entries, and what makes its rank doubtful.

    The precision is that of the matrix's type, or of a narrower type if nearly all entries of the sampled rows fit it
    exactly. Small integers are ignored. For blocks of several types, the narrowest type counts. Rows are sampled before
    any are watched, or the first ones that are watched are the sample.

    Args:
        dtypes: types of the entries, if `noting` does not see them.
        language: whether rows are logits or log-probabilities, which may have been rounded before normalization, hold
            masked tokens, and are integers of 128 or more only if they were rounded.
    """

    def __init__(self, *, dtypes: Iterable[str] = (), language: bool) -> None:
        self.dtypes, self._language = set(dtypes), language
        self.rows = 0
        """Number of rows that were watched."""
        self._to_sample = ROWS
        self._sample: list[NDArray[np.float64]] = []
        self._likeliest: list[NDArray[np.float64]] = []  # largest entry of each sampled row, (n, 1)
        self._row_energies: list[NDArray[np.float64]] = []
        self._column_energies: NDArray[np.float64] | float = 0.0
        self._multipliers = np.random.default_rng(1)
        self._of_columns: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._row_hashes: list[NDArray[np.uint64]] = []
        self._column_hashes: NDArray[np.uint64] | int = 0
        self._finite: NDArray[np.int64] | int = 0
        self._replaced = Replaced()
        self._normalized = True  # whether all sampled rows are log-probabilities
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

    def sample(self, block: NDArray[Any]) -> None:
        """Take (n, M) rows, which are finite or −∞, as the next part of the sample."""
        self._to_sample = max(0, self._to_sample - len(block))
        rows = block.astype(np.float64)
        likeliest = rows.max(1, keepdims=True)
        rows, likeliest = (each[likeliest[:, 0] > -np.inf] for each in (rows, likeliest))
        log_sums = likeliest[:, 0] + np.log(np.exp(rows - likeliest).sum(1))
        self._normalized &= bool((np.abs(log_sums) < RARE).all())
        if self._language:
            self._replaced.sample(rows, likeliest, log_sums)
        self._sample.append(rows[:, evenly(rows.shape[1], COLUMNS)])
        self._likeliest.append(likeliest)

    def watch(self, block: NDArray[Any]) -> None:
        """Inspect the next (n, M) rows, which are finite or −∞."""
        if self._to_sample:
            self.sample(block[: self._to_sample])
        at_once = max(LEAST_ROWS, AT_ONCE // block.shape[1])
        for start in range(0, len(block), at_once):
            self._watch(block[start : start + at_once].astype(np.float64))
        self.rows += len(block)

    def _watch(self, rows: NDArray[np.float64]) -> None:
        """Inspect rows that fit in a cache; they are overwritten."""
        highest, lowest = rows.max(1), rows.min(1)
        self._finite = self._finite + len(rows)
        infinite = np.isneginf(rows) if np.isneginf(lowest).any() else None
        if infinite is not None:
            self._finite = self._finite - infinite.sum(0)
            lowest = rows.min(1, where=~infinite, initial=np.inf)
        if self._language:
            self._replaced.watch(rows, highest, lowest)
        if infinite is not None:
            rows[infinite] = 0.0
        self._hash(rows)
        self.largest = max(self.largest, float(rows.max()), -float(rows.min()))
        with np.errstate(over="ignore"):
            self._row_energies.append(np.einsum("ij,ij->i", rows, rows))
            self._column_energies = self._column_energies + np.einsum("ij,ij->j", rows, rows)

    def _hash(self, rows: NDArray[np.float64]) -> None:
        """Hash rows and columns by sums modulo 2⁶⁴, which no order of summation changes."""
        bits = rows.view(np.uint64).byteswap()  # the leading bits, the only ones that narrow types set, count in full
        if not self._row_hashes:
            self._of_columns = self._multipliers.integers(1 << 63, size=rows.shape[1:], dtype=np.uint64)
        of_rows = self._multipliers.integers(1 << 63, size=rows.shape[:1], dtype=np.uint64)
        self._row_hashes.append(np.einsum("ij,j->i", bits, self._of_columns))
        self._column_hashes = self._column_hashes + np.einsum("ij,i->j", bits, of_rows)

    @property
    def exponent(self) -> int:
        """Return e such that 2^−e times the matrix has squares within float64's range; 0 if it needs no scaling."""
        if self.largest == 0:
            return 0
        exponent = math.frexp(self.largest)[1]
        return exponent if abs(exponent) > np.finfo(np.float64).maxexp // 4 else 0  # squares, and sums of them

    @property
    def masked(self) -> NDArray[np.bool_]:
        """Whether each column is a token that every row masks by a large negative number, (M,)."""
        return self._replaced.masked

    @property
    def _normalizable(self) -> bool:
        """Whether the rows are logits or log-probabilities, which may have been rounded before normalization."""
        return self._language or self._normalized

    @property
    def precision(self) -> Precision:
        """The inferred precision of the entries; `MatrixError` if the largest is subnormal and has lost digits."""
        self.check_digits()
        return replace(self.sampled, distinct=self._repeated)

    @cached_property
    def sampled(self) -> Precision:
        """The precision of the entries as the sample shows it, which does not show what is repeated."""
        stored, sample = self.stored, self._unmasked
        noise = find_noise(sample, eps=stored.value) if sample.size else None
        if sample.size and (sample == np.rint(sample)).all() and np.abs(sample).max() * stored.value < 1:
            if self._language and np.unique(sample).size > 2:
                noise = Noise(max(1 / math.sqrt(12), noise.deviation if noise else 0.0), is_coarse=True)
            elif not self._normalizable:  # counts are exact
                noise = Noise(0.0, is_coarse=False)
        if noise is None and self._language and sample.size and 0 < (step := decimal_step(sample)) < 1:
            size = float(np.sqrt(np.mean(sample**2)))  # decimals that no direction is left to show
            if np.unique(sample).size > FEWEST and step > ROUNDINGS * stored.value * size:
                return Precision(step / size, None, assumed=True, size=size)
        return replace(stored, noise=noise)

    @cached_property
    def _unmasked(self) -> NDArray[np.float64]:
        """The sample without the columns that hold masked tokens."""
        sample = np.concatenate(self._sample)
        least = np.concatenate(self._likeliest) + MASK if self._language else np.finfo(np.float64).min
        return sample[:, (sample > least).all(0)]

    @cached_property
    def stored(self) -> Precision:
        """The precision of the type that holds the entries, or of the narrowest one that they fit."""
        sample = self._unmasked
        stored = max({"float64", *self.dtypes} - {WHOLE}, key=EPS.__getitem__)
        fitting = set() if self.dtypes == {WHOLE} else self._fitting(sample)
        if self._normalizable and self.dtypes != {WHOLE}:  # columns of several types, widened to one
            fitting |= self._fitting(sample.T)
        narrow = max({stored, *fitting}, key=EPS.__getitem__)
        return precision(narrow, assumed=True)

    def check_digits(self) -> None:
        """Raise `MatrixError` if the largest number is subnormal in its type."""
        name = max({"float64", *self.dtypes} - {WHOLE}, key=EPS.__getitem__)
        if 0 < self.largest < torch.finfo(getattr(torch, name)).tiny:
            raise MatrixError(
                f"the largest number, {self.largest:.3g}, is subnormal in {name}: its digits were lost; multiply the "
                "matrix by a power of two before it is stored, no rank depends on the scale"
            )

    @property
    def _repeated(self) -> tuple[int, int] | None:
        """Number of different rows and columns, or ``None`` if all are different."""
        rows, columns = (len(np.unique(each)) for each in self._hashes)
        return None if (rows, columns) == tuple(map(len, self._hashes)) else (rows, columns)

    @property
    def _hashes(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Numbers that are equal for equal rows, (T,), and for equal columns, (M,)."""
        return np.concatenate(self._row_hashes), np.asarray(self._column_hashes)

    def root_mean_square(self) -> float:
        """Return the root mean square of the finite entries, without those of masked tokens."""
        energies, finite = (np.where(self.masked, 0, each).sum() for each in (self._column_energies, self._finite))
        return float(np.sqrt(energies / finite)) if finite else 0.0

    def rank_warning(self, eps: float) -> str:
        """Return a sentence if a few rows or columns hold most of the energy, which makes any rank doubtful, or ''.

        Columns of masked tokens do not count: they are refused, or left out.
        """
        rows = np.concatenate(self._row_energies)
        columns = np.where(self.masked, 0.0, self._column_energies)
        limit = MARGIN * tolerance(1.0, (len(rows), len(columns)), min(eps, EPS["float32"]))
        for name, energies in (("row", rows), ("column", columns)):
            order = np.argsort(energies)
            energy_of_smallest = np.cumsum(energies[order])  # by the smallest ones
            lost = int(np.searchsorted(energy_of_smallest, limit**2 * energy_of_smallest[-1]))
            if 2 * lost > len(energies) and energy_of_smallest[lost - 1] > 0:
                share = energy_of_smallest[lost - 1] / energy_of_smallest[-1]
                return (
                    f"all but {share:.1e} of the matrix's energy sits in {len(energies) - lost:,} of "
                    f"{len(energies):,} {name}s, the largest in {name} {order[-1]:,}: the tolerance hides all others; "
                    f"scale or leave out such {name}s"
                )
        return self.replaced()

    def replaced(self) -> str:
        """Return a sentence if entries stand for something else than logits or log-probabilities, or ''."""
        if not self._language:
            return ""
        # Of numbers that were rounded coarsely many are equal, and not those at a floor alone.
        sample, eps = np.sort(self._unmasked[:, different(self._unmasked.T)], 1), self.stored.value
        same = (sample[:, 1:] == sample[:, :-1]) & (sample[:, 1:] > self._replaced.end)
        equal = same.mean() if same.size else 0.0
        return self._replaced.sentence(*self._hashes, eps if eps <= EPS["float32"] and equal < RARE else None)

    def _fitting(self, sample: NDArray[np.float64]) -> set[str]:
        rows = np.sort(sample, 1)
        telling = rows != np.rint(rows)
        if self._normalizable:
            telling |= np.abs(rows) >= 1 / EPS["bfloat16"]  # smaller integers are exact in every type
        if not telling.any():
            return set()
        telling[:, 1:] &= rows[:, 1:] != rows[:, :-1]  # a constant row is one number
        counts = telling.sum(1)
        enough = counts >= FEWEST
        names = set()
        for name in ("float32", "bfloat16", "float16"):
            fits = _fits(rows, name)
            rows_that_fit = int((2 * (fits & telling).sum(1)[enough] > counts[enough]).sum())
            if fits.all() or rows_that_fit >= max(2, RARE * len(rows)):
                names.add(name)
        return names


def _fits(values: NDArray[np.float64], name: str) -> NDArray[np.bool_]:
    """Return which float64 values a narrower type represents exactly."""
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
        if name == "float16":
            return np.asarray(values.astype(np.float16).astype(np.float64) == values)
    exact = single.astype(np.float64) == values
    return exact & (single.view(np.uint32) & 0xFFFF == 0) if name == "bfloat16" else exact
