"""Detection of entries that were rounded to a narrower type before their rows were normalized."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]

ROWS, COLUMNS = 2048, 1024
"""Rows and columns of a sample: enough to see the repetitions that logits of float32 leave in float64."""
CLASSES, MANY = (64, 16), 64
"""Least number of residue classes that the roundoff of the entries leaves apart, for a few numbers and for `MANY`."""
MOST_CLASSES = 4096
FEWEST = 8
"""Distinct numbers that a row must hold: 6 of 8 fall into one of 64 classes by chance once in 4 · 10⁷ rows."""
SEEN = 0.75
"""Share of a row's distinct numbers in one class that shows a lattice: bfloat16 and float16 logits reach 0.8 to 1,
float32 ones in float32 stay below 0.1 (measured on products of rank 10 to 64, 300 to 1,000 tokens)."""
HALF = 0.5
"""Share of a row's distinct numbers on a lattice whose step is the row's."""
COARSEST = 1024.0
"""Largest step looked for: that of bfloat16 numbers of 10⁵."""
PAIRS = {"float16": 10**5, "float32": 10**5 << 13}
"""Rows times the square of columns at which logits rounded to a type repeat some 20 times within rows: float32 has 13
bits more than float16."""
REPEATS, TIMES = 5, 8
"""Equal entries within rows show a rounding when there are at least so many, and so many times those expected."""
GAPS, OFF_GRID, ON_GRID = 24, 0.1, 0.95
"""Distances between neighbours that show a grid of any step, the part of a step by which they may miss it, and the
share that must not: by chance 24 of 24 are so once in 10¹⁶ times."""
GROUPS = 16
"""Groups of columns that are searched for one grid each, so that a few columns of other numbers do not hide it."""
BITS = {"bfloat16": 9.5, "float16": 12.5, "float32": 25.5}
"""Most bits between a row's spread and the step of its largest numbers: a type's own bits, its sign, and one half."""

SUM, SUM_BITS = "sums of narrower numbers", 18.0
"""What no type rounds to, because it is coarser than float32 and finer than float16, and the most bits of that: a mean
of eight passes in bfloat16 has 13, float32 logits with spread 20 around −60 have 22."""


@dataclass(frozen=True)
class Rounding:
    """A rounding, before normalization, that the entries of a matrix still show."""

    step: float
    """Distance of neighbouring numbers of the coarser type, its root mean square over the rows that show it; infinite
    where nothing of a row is left but one number."""
    share: float
    """Share of the sampled rows that show it."""
    dtype: str | None
    """The widest type that rounds as coarsely, or what the numbers were rounded to; ``None`` where only repeated
    entries show the rounding: they tell the step of a single rounding, and less than that of a sum of several."""

    def noise(self, shape: tuple[int, int]) -> float:
        r"""Return the expected spectral norm of the rounding errors of a T × M matrix.

        Errors are uniform in ±δ/2 with standard deviation δ/√12, and a random matrix of n × M such entries has norm
        :math:`(\sqrt n + \sqrt M) δ / \sqrt{12}` (Davidson and Szarek 2001, theorem II.13), n the rounded rows.
        """
        T, M = shape
        return self.step / math.sqrt(12) * (math.sqrt(self.share * T) + math.sqrt(M))

    def __str__(self) -> str:
        """Return one sentence for people."""
        seen = f"(seen in {100 * self.share:.3g} % of the sampled rows)"
        if math.isinf(self.step):
            return f"the numbers of a row differ by their roundoff at most: what was rounded away cannot be told {seen}"
        if self.dtype is None:
            steps = f"a rounding to steps of about {self.step:.2g}"
            return f"entries repeat within rows as after {steps}, after clipping, or in a model of counts {seen}"
        if self.dtype == SUM:
            return f"the numbers are {SUM}, or were rounded as coarsely, in steps of about {self.step:.2g} {seen}"
        coarse = f"{self.dtype}, or as coarsely, before normalization" if self.dtype in BITS else self.dtype
        return f"the numbers were rounded to {coarse}: in steps of about {self.step:.2g} {seen}"


def find_rounding(sample: Rows, *, eps: float, structured: bool = False) -> Rounding | None:
    """Return the rounding that a sample of rows shows, or ``None``.

    A number that is common to a row (log Z, its largest logit) moves the lattice of a narrower type and keeps it:
    the entries of a row then fall into one residue class modulo the step. A scale or any other function applied
    afterwards hides the lattice, but equal logits stay equal: their number tells the step too.

    Args:
        sample: (n, m) finite entries, of the type that holds them widened to float64.
        eps: roundoff of that type.
        structured: whether equal entries may be part of the matrix's structure: then only grids show a rounding, of
            all entries or of each column, whatever their scale.
    """
    varied = sample[:, ~_copies(sample)]
    if varied.shape[1] < 2:
        varied = sample
    # What is common to a column, as a bias added in full precision, is gone from the differences of two rows.
    steps = varied[1:] - varied[:-1]
    differences = [_lattice(steps, 2 * eps)] if len(varied) > 1 else []
    if structured:
        scaled = [_scaled_grid(varied, eps), _grids(steps, 2 * eps)]
    else:
        scaled = [_repeats(varied, eps), _grids(varied.T, eps), _grids(steps, 2 * eps)]
    signs = [_lattice(varied, eps), *differences, *scaled]
    least = HALF if structured else 0.0
    roundings = [rounding for rounding in signs if rounding is not None and rounding.share > least]
    # A lattice tells the type: its estimate counts unless repetitions tell of much larger steps.
    shape = len(sample), sample.shape[1]
    return max(roundings, key=lambda rounding: rounding.noise(shape) * (4 if rounding.dtype else 1), default=None)


def can_show(sample: Rows, dtype: str = "float16") -> bool:
    """Return whether a sample of logits is large enough to show any rounding to ``dtype`` or coarser, scaled or not."""
    distinct = 1 + (np.diff(np.sort(sample, 1), axis=1) != 0).sum(1) if sample.size else np.zeros(1)
    return bool(np.median(distinct) >= FEWEST and sample.size * sample.shape[1] >= PAIRS[dtype])


def can_show_grid(sample: Rows, *, eps: float) -> bool:
    """Return whether rows, columns and differences of rows have enough numbers to show a grid, each on its own."""
    parts = (sample, sample.T, *([np.diff(sample, axis=0)] if len(sample) > 1 else []))
    return all(np.median([len(_outer_gaps(each, eps)[0]) for each in part]) >= GAPS for part in parts)


def _copies(sample: Rows) -> NDArray[np.bool_]:
    """Return which columns equal an earlier one in all rows, (m,): those of unused tokens say nothing of rounding."""
    columns = np.ascontiguousarray(sample.T)
    _, first = np.unique(columns.view(f"V{columns.itemsize * columns.shape[1]}").ravel(), return_index=True)
    copies = np.ones(len(columns), dtype=bool)
    copies[first] = False
    return copies


def _lattice(sample: Rows, eps: float) -> Rounding | None:
    rows = np.sort(sample[:, :: max(1, sample.shape[1] // 256)], 1)
    largest = 2 * np.quantile(np.abs(rows), 0.9, axis=1)  # a few masked or damaged entries do not hide the others
    distinct = np.abs(rows) <= largest[:, None]
    distinct[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    counts = distinct.sum(1)
    width = eps * float(np.quantile(largest, 0.99))
    usable = (counts >= FEWEST) & (eps * largest <= width)
    if width <= 0 or not usable.any():
        return None
    rows, distinct, largest = rows[usable], distinct[usable], largest[usable]
    classes = CLASSES[int(np.median(counts) >= MANY)]
    step = 2.0 ** math.ceil(math.log2(classes * width))
    on_it = _commonest(rows, distinct, step, width) >= SEEN
    rounded = on_it.copy()
    steps = np.zeros(len(rows))
    # What lies on a lattice lies on every finer one: from the finest step that roundoff leaves visible to coarser ones.
    while on_it.any() and step <= COARSEST:
        steps[on_it] = step
        step *= 2
        on_it &= _commonest(rows, distinct, step, width) >= HALF
    if not rounded.any():
        return None
    rows, steps = rows[rounded], steps[rounded]
    spread = np.quantile(rows, 0.95, axis=1) - np.quantile(rows, 0.05, axis=1)
    bits = float(np.median(np.log2(np.maximum(spread, steps) / steps)))
    dtype = next((name for name, most in BITS.items() if bits <= most), "float64")
    dtype = SUM if dtype == "float32" and bits <= SUM_BITS else dtype
    return Rounding(float(np.sqrt((steps**2).mean())), len(steps) / int(usable.sum()), dtype)


def _commonest(rows: Rows, distinct: NDArray[np.bool_], step: float, width: float) -> NDArray[np.float64]:
    """Return the share of each row's distinct numbers in its commonest residue class modulo ``step``, (n,).

    Classes are at least ``width`` wide; each is counted in two positions, so that roundoff at an edge splits none.
    Numbers below ``step`` show nothing: all that are much smaller than it fall into one class.
    """
    classes = int(min(MOST_CLASSES, step / width))
    distinct = distinct & (np.abs(rows) >= step)
    residues = rows / step
    residues -= np.floor(residues)
    first = classes * np.arange(len(rows))[:, None]
    best = np.zeros(len(rows))
    for shift in (0.0, 0.5):
        numbers = np.floor(residues * classes + shift).astype(np.int64) % classes + first
        counts = np.bincount(numbers[distinct], minlength=classes * len(rows)).reshape(len(rows), classes)
        best = np.maximum(best, counts.max(1))
    return best / np.maximum(distinct.sum(1), FEWEST)


def _scaled_grid(sample: Rows, eps: float) -> Rounding | None:
    """Return the rounding of entries that lie on a grid of any step: all on one, or each column or row on its own."""
    groups = np.array_split(sample, min(GROUPS, sample.shape[1]), axis=1)
    signs = (_grids(parts, eps) for parts in (groups, sample.T, sample))
    return next((rounding for rounding in signs if rounding is not None), None)


def _grids(parts: Iterable[Rows], eps: float) -> Rounding | None:
    """Return the rounding of parts of a sample, most of which lie on a grid of their own."""
    steps = np.array([_grid_step(part.ravel(), eps) for part in parts])
    on_grid = steps > 0
    if 2 * on_grid.sum() <= len(steps):
        return None
    return Rounding(float(np.sqrt((steps[on_grid] ** 2).mean())), float(on_grid.mean()), "evenly spaced numbers")


def _grid_step(numbers: NDArray[np.float64], eps: float) -> float:
    """Return the step of a grid that the differences of the largest numbers of either sign are multiples of, or 0."""
    gaps, largest = _outer_gaps(numbers, eps)
    if len(gaps) < GAPS:
        return 0.0
    step = gaps.min()
    multiples = gaps / step
    on_grid = np.abs(multiples - np.rint(multiples)) < OFF_GRID
    return float(step) if step > CLASSES[0] * eps * largest and on_grid.mean() >= ON_GRID else 0.0


def _outer_gaps(numbers: NDArray[np.float64], eps: float) -> tuple[NDArray[np.float64], float]:
    """Return the distances above roundoff of neighbours among the largest numbers of either sign, and the largest."""
    sizes = np.abs(numbers)
    largest = float(np.quantile(sizes, 0.99))
    outer = (sizes > largest / 2) & (sizes <= largest)
    gaps = np.concatenate([np.diff(np.sort(numbers[outer & side])) for side in (numbers < 0, numbers > 0)])
    return gaps[gaps > TIMES * eps * largest], largest


def _repeats(sample: Rows, eps: float) -> Rounding | None:
    r"""Return the rounding that equal entries show.

    Of n numbers of density f rounded to steps s, a share :math:`τ = 1 - (1 - e^{-λ})/λ` equals its neighbour in order,
    with λ = n f s; λ ≈ 2τ / (1 − τ) to a factor of 2. The spread of the middle of a row gives 1 / (n f).
    """
    rows = np.sort(sample, 1)
    n = rows.shape[1]
    equal = (rows[:, 1:] == rows[:, :-1]).sum(1)
    low, high = int(0.1 * (n - 1)), math.ceil(0.9 * (n - 1))
    largest = np.maximum(np.abs(rows[:, low]), np.abs(rows[:, high]))
    constant = rows[:, -1] - rows[:, 0] <= 2 * TIMES * eps * np.maximum(np.abs(rows[:, 0]), np.abs(rows[:, -1]))
    if n > 1 and 2 * constant.sum() > len(rows):
        return Rounding(math.inf, float(constant.mean()), None)
    varied = rows[:, high] - rows[:, low] > 2 * TIMES * eps * largest
    if not varied.any():
        return None
    equal, largest = equal[varied], largest[varied]
    spacing = (rows[varied, high] - rows[varied, low]) / (high - low)
    # The same formula for small λ, with the step of the type at hand.
    expected = float((n / 2 * np.minimum(eps * largest / spacing, 1.0)).sum())
    if equal.sum() < REPEATS + TIMES * expected:
        return None
    share = np.minimum(equal / n, 1 - 1 / n)
    steps = 2 * share / (1 - share) * spacing
    return Rounding(float(np.sqrt((steps**2).mean())), float((equal > 0).mean()), None)
