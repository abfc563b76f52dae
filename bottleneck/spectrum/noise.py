"""The floor of noise behind the directions of a matrix, such as the errors of a rounding, seen in its entries alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .lapack import svd
from .precision import EPS, ROUNDINGS, Noise
from .rules import NOISE_FACTOR

Matrix = NDArray[np.float64]

ROWS = 2048
"""Most rows of the sample that is searched for noise, for a search of about a second; `COLUMNS` are half as many."""
COLUMNS = ROWS // 2
FEWEST = 8
"""Least number of directions, of rows or of tokens that show something of all."""
ABOVE = 1.1
"""Ratio of the largest singular value of a residual to that of the same entries with random signs, up to which the
residual counts as noise: the largest value of noise fluctuates by a few percent (Tracy and Widom 1994)."""
MANY = 0.4
"""Share of the sample's directions behind which noise may be none: the end of a spectrum of fewer contexts than the
matrix has directions looks like it, from 0.44 on of T = 48 to 1,000 contexts of SmolLM2 and of random layers."""
DECIMALS = 7
"""Most decimals that numbers may have been rounded to; float32 has more."""
LARGEST = ABOVE / math.sqrt(12)
"""Largest noise, relative to the entries, that a rounding makes: steps as large as the entries. What is larger is the
matrix itself."""


def find_noise(sample: Matrix, *, eps: float, size: float | None = None, largest: float = LARGEST) -> Noise | None:
    r"""Return the noise that a sample of a matrix shows, or ``None`` if its singular values decay to the end.

    Rounding errors are nearly independent, and independent errors of symmetric distribution are as likely with any
    other signs. So the residual behind r directions is noise where its largest singular value is that of the same
    entries with random signs; what a signal leaves is larger, because its entries agree with each other (Hong, Sheng
    and Dobriban 2020, *Selecting the number of components in PCA via random signflips*, arXiv 2012.02985). Errors of
    any size in each row, column and entry keep their size in this comparison, so scales, shifts and biases hide
    nothing. The residual has lost r dimensions of its rows and of its columns, which the norms of Marchenko and Pastur
    (1967) account for. The noise is behind the fewest such directions; copies share their errors and count once.

    Args:
        sample: (n, m), finite.
        eps: roundoff of the type that holds the entries.
        size: root mean square of the numbers that were rounded; by default that of the sample.
        largest: largest noise, relative to the entries.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> signal = rng.standard_normal((200, 5)) @ rng.standard_normal((5, 100))
        >>> find_noise(np.round(signal, 1), eps=2.0**-52).is_coarse
        True
    """
    exponent = math.frexp(float(np.abs(sample).max()))[1]
    sample = np.ldexp(sample, -exponent)
    sizes = np.abs(sample).max(1) if size is None else math.ldexp(size, -exponent)
    constant = np.ptp(sample, axis=1) <= ROUNDINGS * min(eps, EPS["float32"]) * sizes
    if sample.shape[1] > 1 and 2 * constant.sum() > len(sample):
        return Noise(math.inf, is_coarse=True)
    floor = _floor(sample[different(sample)][:, different(sample.T)], largest)
    if floor is None:
        return None
    deviation, is_resolved, has_many = floor
    least = ROUNDINGS * eps * (float(np.sqrt(np.mean(sample**2))) if size is None else math.ldexp(size, -exponent))
    is_coarse = is_resolved and bool(math.sqrt(12) * deviation > least)
    return Noise(math.ldexp(deviation, exponent), is_coarse, may_be_signal=is_coarse and has_many)


def _floor(sample: Matrix, largest: float, most: int | None = None) -> tuple[float, bool, bool] | None:
    """Return the deviation of a sample's floor, whether it is that of the entries, and whether `MANY` stand above it.

    If not that of the entries, it is the roundoff of this decomposition, below which there may be less. ``None`` is
    returned if there is no floor, or ``most`` directions or more stand above it.
    """
    rows, columns = sample.shape
    if min(rows, columns) > COLUMNS // 2:  # a first search, of a part that leaves at least half of it to noise
        some = evenly(rows, COLUMNS)[:, None], evenly(columns, COLUMNS // 2)
        if first := _floor(sample[some], largest, COLUMNS // 4):
            return first
    if min(sample.shape) <= FEWEST + 1:
        return None
    centered = sample
    for axis in (1, 0, 1):
        centered = centered - centered.mean(axis, keepdims=True)
    rows, columns = rows - 1, columns - 1
    size = min(rows, columns)
    if not centered.any():
        return None
    _, values, V = svd(np.asarray(np.linalg.qr(centered, "r")) if rows > columns else centered)
    values, V = values[:size], V[:size]
    left, right = centered @ V.T, V.T * values  # both are exact up to the roundoff of the largest value
    random = np.random.default_rng(0)
    behind, last = np.arange(size), size - FEWEST
    norms = np.sqrt(rows - behind) + np.sqrt(columns - behind)  # of a random matrix, expected
    arithmetic = 2.0**-52 * max(float(np.sqrt(np.mean(sample**2))) * norms[0], 4 * float(values[0]))
    edges = norms / norms[0] / np.sqrt((1 - behind / rows) * (1 - behind / columns))
    # Random signs hardly make a larger norm than the largest norms of a row and of a column together.
    possible = values <= np.maximum(NOISE_FACTOR * edges * (_norms_behind(left) + _norms_behind(right)), arithmetic)
    is_small = values <= np.maximum(largest * float(np.sqrt(np.mean(centered**2))) * norms, arithmetic)
    single, start = (left.astype(np.float32), V.astype(np.float32)), random.standard_normal((columns + 1, FEWEST))
    signs = 1 - 2 * random.integers(2, size=centered.shape, dtype=np.int8).astype(np.float32)

    def is_noise(r: int) -> bool:
        if values[r] <= arithmetic or not possible[r]:
            return bool(possible[r])
        residual = single[0][:, r:] @ single[1][r:]
        residual *= signs / np.float32(values[r])
        return _exceeds(residual, 1 / (ABOVE * edges[r]), start)

    most = size if most is None else most
    places = np.flatnonzero((possible & is_small)[: last + 1])
    if not places.size or places[0] >= most or places[-1] != last or not is_noise(last):
        return None
    # Noise of a few rows or columns stands above that of all others, and what is left behind a part of it need not look
    # like noise: the search goes up in steps of a sixth, and back to the first place after the signal.
    signal, found = -1, 0
    while places[found] < last and not is_noise(places[found]):
        signal, found = found, min(int(np.searchsorted(places, places[found] * 7 // 6 + 1)), len(places) - 1)
        if places[signal] >= most:
            return None
    while signal + 1 < found:
        middle = (signal + found) // 2
        signal, found = (signal, middle) if is_noise(places[middle]) else (middle, found)
    low = int(places[found])
    if low >= most or (low and not is_small[low - 1] and is_noise(low - 1)):  # it begins above: the matrix itself
        return None
    is_resolved = bool(values[low] > arithmetic)
    return float(values[low] / norms[low] if is_resolved else arithmetic / norms[0]), is_resolved, low > MANY * size


def evenly(size: int, most: int) -> NDArray[np.int64]:
    """Return up to ``most`` evenly spaced places of ``size``."""
    return np.linspace(0, size - 1, min(most, size)).astype(int)


def _norms_behind(scaled: Matrix) -> Matrix:
    """Return the largest norm of a row of U Σ without its first 0, 1, … columns."""
    return np.asarray(np.sqrt(np.cumsum(scaled[:, ::-1] ** 2, 1)[:, ::-1].max(0)))


def _exceeds(matrix: NDArray[np.float32], limit: float, start: Matrix) -> bool:
    """Return whether the largest singular value is above a limit, by subspace iteration from ``start``, (m, k).

    The estimate grows; of noise of any profile it misses less than a part of 0.6/n after n ≥ 3 steps.
    """
    vectors = start.astype(np.float32)
    for step in range(1, math.ceil(1.2 / (ABOVE - 1)) + 1):  # to half of the part by which it may be above
        vectors = np.linalg.qr(vectors)[0]
        product = matrix @ vectors
        estimate = float(np.linalg.norm(product, 2))
        if estimate >= limit or (step >= 3 and estimate * (1 + 0.6 / step) < limit):
            break
        vectors = matrix.T @ product
    return estimate >= limit


def different(rows: Matrix) -> NDArray[np.bool_]:
    """Return which rows do not equal an earlier one, (n,)."""
    whole = np.ascontiguousarray(rows)
    _, first = np.unique(whole.view(f"V{whole.itemsize * whole.shape[1]}").ravel(), return_index=True)
    is_first = np.zeros(len(rows), dtype=bool)
    is_first[first] = True
    return is_first


def decimal_step(values: NDArray[np.floating[Any]]) -> float:
    """Return the step of the decimals that all numbers were rounded to, in float32 or before it; 0 if they were not."""
    parts = values.ravel()[:1024], values  # most numbers that are not are told by a few

    def is_rounded(part: NDArray[np.floating[Any]], n: int) -> bool:
        return np.array_equal(np.round(part, n).astype(np.float32), part.astype(np.float32))

    rounded = (n for n in range(DECIMALS) if all(is_rounded(part, n) for part in parts))
    return float(10.0 ** -next(rounded, np.inf))
