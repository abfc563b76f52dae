"""Matrices of probabilities: their logarithms, or intervals of them where zeros or decimals tell no more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, final

import numpy as np

from ..errors import MatrixError
from ..spectrum.blocks import as_array
from ..spectrum.precision import EPS
from .matrix import MatrixSource
from .partial import Part, PartialSource

SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-149, "bfloat16": 2.0**-133, "float16": 2.0**-24}
"""Smallest positive number of each type."""
MISSED, MISSED_ROUNDED = 1e-2, 0.25
"""By how much a sum of probabilities may miss 1, and where few decimals or digits explain it."""
DECIMALS, DIGITS = 12, 12
"""Most decimals, and most significant digits, that probabilities may have been rounded to."""
PLACES = 400
"""More places than any positive number of float64 has zeros before its first digit."""
FEW = 3
"""Numbers that end in a zero by chance: fewer do not tell digits from decimals, and count for both."""
CHANCE = 1e-3
"""Probability below which unrounded numbers of a type are not all taken for decimals: coarse types hold few others."""


@final
class ProbabilitySource(PartialSource):
    """Probabilities of which some are zero or were rounded to decimals: each logarithm lies in an interval.

    Args:
        matrix: (T, M), as `MatrixSource` takes it.
        path: its name.
        error: the most by which each may be off, beside the roundoff ``eps`` of its type.
        eps: of the type that holds them.
    """

    def __init__(self, matrix: Any, *, path: str, error: float, eps: float) -> None:
        self._matrix, self._error, self._eps = matrix, error, eps
        self.shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        self.targets = None
        self.description = {"path": path, "kind": "probabilities", "head": None, "corpus": None, "split": None}

    @property
    def step(self) -> float:
        """Zero: `Part.error` holds the error of each entry."""
        return 0.0

    def tokens(self) -> None:
        """Return ``None``: the text is not known."""

    def parts(self, ranges: Iterable[range] | None = None) -> Iterator[Part]:
        """Yield the rows; an entry that may be zero is unseen."""
        for rows in self.ranges() if ranges is None else ranges:
            p = as_array(self._matrix[rows.start : rows.stop]).astype(np.float64)
            seen = p > self._error / (1 - self._eps)
            share = np.divide(self._error, p, out=np.zeros(p.shape), where=seen) + self._eps
            log_probs = np.log(np.where(seen, p, 2 * self._error))
            yield Part(rows.start, log_probs, seen, -np.log1p(-share))


def open_probabilities(matrix: Any, *, path: str = "array") -> MatrixSource | ProbabilitySource:
    """Return the log-probabilities of a (T, M) matrix of probabilities, whole where their type alone rounded them.

    Raises:
        MatrixError: for rows that are not probabilities, or that a truncation left (top-k, top-p).
    """
    whole = MatrixSource(matrix, kind="probabilities", path=path)
    matrix, dtype = whole.matrix, whole.native
    eps, least, sizes = EPS.get(dtype, EPS["float64"]), np.inf, np.zeros(PLACES, int)
    zeros, never = np.zeros(whole.shape[1], bool), np.ones(whole.shape[1], bool)  # columns of some, of masked tokens
    steps, digits = {*range(1, DECIMALS + 1)}, {n for n in range(1, DIGITS + 1) if 2 * eps * 10 ** (n - 1) < 1}
    chance, chance_of_digits = dict.fromkeys(steps, 0.0), dict.fromkeys(digits, 0.0)
    for rows in whole.ranges():
        p = as_array(matrix[rows.start : rows.stop]).astype(np.float64)
        wrong = MatrixError(
            f"rows {rows.start:,} to {rows.stop - 1:,} of {path} are not probabilities: these are from 0 to 1, and "
            "those of a row sum to 1"
        )
        if not ((p >= 0) & (p <= 1 + MISSED_ROUNDED)).all():
            raise wrong
        off, some = eps * p + EPS["float64"], p[p > 0]
        steps = {n for n in steps if (np.abs(p - np.round(p, n)) <= off).all()}
        zeros_before = -np.floor(np.log10(some))  # 1 for numbers from 0.1 to 1
        sizes += np.bincount(zeros_before.astype(int), minlength=PLACES)
        scales = {n: 10.0 ** (n - 1 + zeros_before) for n in digits}
        digits = {n for n, at in scales.items() if (np.abs(some * at - np.rint(some * at)) <= eps * some * at).all()}
        rounded = p.shape[1] * 10.0 ** -min(steps, default=DECIMALS), 10.0 ** (1 - min(digits, default=DIGITS))
        most = max(MISSED, min(MISSED_ROUNDED, max(rounded) / 2))
        if not np.allclose(p.sum(1), 1, rtol=0, atol=most):
            raise wrong
        zeros, never = zeros | ~p.all(0), never & ~p.any(0)
        least = min(least, some.min(initial=np.inf))
        for n in steps:
            chance[n] += np.log(np.minimum(1, 2 * 10**n * off[p > 0])).sum()
        for n in digits:
            chance_of_digits[n] += np.log(np.minimum(1, 2 * eps * some * scales[n])).sum()
    step = min((n for n in steps if chance[n] < math.log(CHANCE)), default=math.inf)
    digit = min((n for n in digits if chance_of_digits[n] < math.log(CHANCE)), default=math.inf)
    smallest = SMALLEST.get(dtype, SMALLEST["float64"])
    error = (10.0**-step + smallest) / 2
    # Of that many decimals, larger numbers would have more digits: one ends in a zero by chance, and three do not.
    longer = int(sizes[: int(max(0, min(step - digit + 1, PLACES)))].sum()) if digit < math.inf else 0
    if longer and not zeros.any():
        return ProbabilitySource(matrix, path=path, error=error * (longer < FEW), eps=10.0 ** (1 - digit) / 2)
    if step == math.inf and least > smallest / eps:
        if (zeros & ~never).any():
            raise MatrixError(
                f"{path} holds zeros, and no other probability below {least:.3g}, as truncations leave (top-k, top-p): "
                "give the probabilities of all tokens"
            )
        return whole
    return ProbabilitySource(matrix, path=path, error=error, eps=eps)
