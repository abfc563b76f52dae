"""The floor of noise behind the directions of a matrix, such as the errors of a rounding, seen in its entries alone."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .lapack import svd
from .precision import EPS, Noise

Rows = NDArray[np.float64]

ROWS, COLUMNS = 2048, 1024
"""Most rows and columns of the sample that is searched for noise."""
FIRST = 512
"""Columns of a first search; the whole sample is searched if they leave less than half of them to noise."""
FEWEST = 8
"""Least number of directions that show a floor."""
ABOVE = 1.1
"""Ratio of the largest singular value of a residual to that of the same entries with random signs, up to which the
residual counts as noise: the largest value of noise fluctuates by a few percent (Tracy and Widom 1994)."""
LARGEST = 0.3
"""Largest noise, relative to the entries, that a rounding makes: steps as large as the entries. What is larger is the
matrix itself."""
COARSER = 16.0
"""Step of a rounding that is coarser than a type, in units of its eps times the entries: what computes in the type,
such as log-softmax, adds errors of a few."""
LOOSE = 1.3
"""The same ratio to an estimate of that value from above, beyond which the residual cannot count as noise."""
STEPS, BLOCK = 12, 6
"""Iterations and vectors that find the largest singular value to about a percent."""


def find_noise(sample: Rows, *, eps: float, size: float | None = None, largest: float = LARGEST) -> Noise | None:
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
    constant = np.ptp(sample, axis=1) <= COARSER * min(eps, EPS["float32"]) * sizes
    if sample.shape[1] > 1 and 2 * constant.sum() > len(sample):
        return Noise(math.inf, is_coarse=True)
    floor = _floor(sample[different(sample)][:, different(sample.T)], largest)
    if floor is None:
        return None
    least = COARSER * eps * (float(np.sqrt(np.mean(sample**2))) if size is None else math.ldexp(size, -exponent))
    is_coarse = floor.is_resolved and bool(math.sqrt(12) * floor.deviation > least)
    return Noise(math.ldexp(floor.deviation, exponent), is_coarse)


class _Floor(NamedTuple):
    deviation: float
    directions: int
    """Number of directions above the noise; the means of the rows and columns do not count."""
    is_resolved: bool
    """Whether it is the noise of the entries, or the roundoff of this decomposition, below which there may be less."""


def _floor(sample: Rows, largest: float) -> _Floor | None:
    if sample.shape[1] > FIRST and len(sample) > FIRST:
        some = np.linspace(0, sample.shape[1] - 1, FIRST).astype(int)
        first = _floor(sample[: 2 * FIRST, some], largest)
        if first is not None and first.directions < FIRST // 2:
            return first
    if min(sample.shape) <= FEWEST + 1:
        return None
    centered = sample
    for axis in (1, 0, 1):
        centered = centered - centered.mean(axis, keepdims=True)
    rows, columns = (size - 1 for size in sample.shape)
    size = min(rows, columns)
    if not centered.any():
        return None
    U, values, V = svd(centered)
    random = np.random.default_rng(0)
    behind, last = np.arange(size), size - FEWEST
    norms = np.sqrt(rows - behind) + np.sqrt(columns - behind)  # of a random matrix, expected
    arithmetic = 2.0**-52 * max(float(np.sqrt(np.mean(sample**2))) * norms[0], 4 * float(values[0]))
    edges = norms / norms[0] / np.sqrt((1 - behind / rows) * (1 - behind / columns))

    def is_noise(r: int) -> bool:
        residual = centered - (U[:, :r] * values[:r]) @ V[:r]
        residual *= 1.0 - 2.0 * random.integers(2, size=residual.shape, dtype=np.int8)
        return bool(values[r] <= max(ABOVE * edges[r] * _largest_value(residual, random), arithmetic))

    def bisected(signal: int, found: int) -> int:
        while signal + 1 < found:
            middle = (signal + found) // 2
            signal, found = (signal, middle) if is_noise(places[middle]) else (middle, found)
        return found

    if not is_noise(last):
        return None
    # Random signs hardly make a larger norm than the largest norms of a row and of a column together.
    most = _norms_behind(U, values) + _norms_behind(V.T, values)
    possible = values[:last] <= np.maximum(LOOSE * edges[:last] * most[:last], arithmetic)
    places = [*np.flatnonzero(possible).tolist(), last]
    # Noise of a few rows or columns stands above that of all others, and what is left behind a part of it need not look
    # like noise: the search goes up in steps of a sixth, and back to the first place after the signal.
    signal, found = -1, 0
    while places[found] < last and not is_noise(places[found]):
        signal, found = found, min(len(places) - 1, found + 1 + found // 6)
    low = places[bisected(signal, found)]
    most_noise = largest * float(np.sqrt(np.mean(centered**2))) * norms
    if values[low] > most_noise[low]:  # a direction of a few entries, whose signs are any
        low = places[bisected(found, len(places) - 1)]
    if values[low] <= arithmetic:
        return _Floor(float(arithmetic / norms[0]), low, is_resolved=False)
    return _Floor(float(values[low] / norms[low]), low, is_resolved=True) if values[low] <= most_noise[low] else None


def _norms_behind(vectors: Rows, values: Rows) -> Rows:
    """Return the largest norm of a row of U Σ Vᵀ without its first 0, 1, … directions, from U; of a column, from V."""
    squares = (vectors * values)[:, ::-1] ** 2
    return np.asarray(np.sqrt(np.cumsum(squares, 1)[:, ::-1].max(0)))


def _largest_value(matrix: Rows, random: np.random.Generator) -> float:
    """Return the largest singular value, by subspace iteration."""
    vectors = random.standard_normal((matrix.shape[1], BLOCK))
    for _ in range(STEPS):
        vectors = np.linalg.qr(matrix.T @ (matrix @ vectors))[0]
    return float(np.linalg.norm(matrix @ vectors, 2))


def different(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows do not equal an earlier one, (n,)."""
    whole = np.ascontiguousarray(rows)
    _, first = np.unique(whole.view(f"V{whole.itemsize * whole.shape[1]}").ravel(), return_index=True)
    is_first = np.zeros(len(rows), dtype=bool)
    is_first[first] = True
    return is_first
