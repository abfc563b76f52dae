"""The rank of a matrix after a function is applied to every entry (Ganea et al. 2019, §4: theorems 3, 5, 6, lemma 4).

Ranks are computed in exact rational arithmetic, in which a float is the binary fraction it stores. The functions are
for matrices of tens of rows.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from numbers import Integral, Number
from typing import Any

import numpy as np

from ..core.checks import check_positive, typed
from ..errors import ConfigurationError, MatrixError

GRID = 2**20
"""Number of values to which a knot may move; a draw has too low a rank with probability K / GRID at most (Schwartz and
Zippel), K the rank of f(A)."""
DRAWS = 20


def exact_rank(matrix: Sequence[Sequence[Any]]) -> int:
    """Return the exact rank of a matrix, by Gaussian elimination in rational arithmetic; for small matrices.

    Args:
        matrix: rows of equal length of whole numbers, fractions or floats; a float is the binary fraction it stores.

    Example:
        >>> exact_rank([[1, 2], [Fraction(1, 3), Fraction(2, 3)]])
        1
    """
    rows = fractions(matrix)
    rank = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((row for row in range(rank, len(rows)) if rows[row][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for row in range(rank + 1, len(rows)):
            if rows[row][column]:
                factor = rows[row][column] / rows[rank][column]
                rows[row] = [x - factor * y for x, y in zip(rows[row], rows[rank], strict=True)]
        rank += 1
    return rank


def fractions(matrix: Sequence[Sequence[Any]]) -> list[list[Fraction]]:
    """Return the rows as fractions; see `exact_rank`."""
    try:
        rows = [[Fraction(int(x) if isinstance(x, Integral) else x) for x in map(_number, row)] for row in matrix]
    except (ValueError, OverflowError, TypeError) as error:
        raise MatrixError(f"exact arithmetic takes finite numbers: {error}") from error
    if len({len(row) for row in rows}) > 1:
        raise MatrixError("the rows of a matrix must have one length: give a rectangle of numbers")
    return rows


def _number(x: Any) -> Any:
    if not isinstance(x, Number):
        raise TypeError(f"{x!r} is not a number")
    return x


@typed
def power_rank_bound(N: int, M: int, d: int, p: int) -> int:
    r"""Return the largest rank that the p-th power of every entry of an N × M matrix of rank d can have.

    .. math:: r(A^{⊙p}) ≤ \min\{N, M, \binom{d + p - 1}{p}\}

    (Amini et al. 2012; Ganea et al. 2019, theorem 5, eq. 13): there are that many monomials of degree p in d variables.
    `power_rank_example` attains it.

    Args:
        N: rows.
        M: columns.
        d: rank, at least 1.
        p: power, a positive whole number.

    Example:
        >>> power_rank_bound(100, 100, 3, 2)
        6
    """
    check_positive(N=N, M=M, d=d, p=p)
    return min(N, M, math.comb(d + p - 1, p))


@typed
def power_rank_example(N: int, M: int, d: int, p: int) -> list[list[int]]:
    r"""Return an N × M matrix of whole numbers of rank d whose p-th power has the rank of `power_rank_bound`.

    A = X Yᵀ, where the rows of X and of Y are points of the lattice :math:`\{x ∈ Z^d : x ≥ 0, \sum x_k = p\}`, in one
    order. By the multinomial theorem :math:`A^{⊙p} = Φ(X) D Φ(Y)^⊤`, with the monomials of degree p in Φ and the
    positive multinomial coefficients in D. Polynomials of degree p are determined by their values on the lattice, so
    the rows of Φ are independent, and the block of the points that X and Y share is a positive definite Gram matrix.

    Args:
        N: rows, at least d.
        M: columns, at least d.
        d: rank.
        p: power.

    Raises:
        ConfigurationError: for a number below one, or a matrix too small for the rank d.

    Example:
        >>> A = power_rank_example(4, 5, 2, 3)
        >>> exact_rank(A), exact_rank([[x**3 for x in row] for row in A])
        (2, 4)
    """
    power_rank_bound(N, M, d, p)
    if d > min(N, M):
        raise ConfigurationError(f"a matrix of {N} × {M} cannot have the rank {d}: give a d of at most {min(N, M)}")
    bars = combinations(range(d + p - 1), d - 1)
    lattice = [[b - a - 1 for a, b in zip((-1, *bar), (*bar, d + p - 1), strict=True)] for bar in bars]
    lattice.sort(key=max, reverse=True)  # the d corners first: A has rank d from the first d rows and columns on
    X, Y = ([lattice[row % len(lattice)] for row in range(size)] for size in (N, M))
    return [[sum(map(int.__mul__, x, y)) for y in Y] for x in X]


@dataclass(frozen=True)
class FullRankWitness:
    """The columns of lemma 4, one for each row of A, and the function f for which f(A) has full rank."""

    columns: tuple[int, ...]
    """Distinct columns j_i such that the entry (i, j_i) of A occurs nowhere else in A."""
    values: frozenset[Any]
    """Those entries."""

    def function(self, x: Any) -> int:
        """Return f(x): 1 for ``values``, else 0. The ``columns`` of f(A) form the identity."""
        return int(x in self.values)


def full_rank_witness(A: Any) -> FullRankWitness | None:
    """Return a function f for which f(A), (M, N) with M ≤ N, has full rank M (Ganea et al. 2019, lemma 4).

    The lemma requires M distinct columns j_i such that the entries (i, j_i) are distinct from all other entries of A. A
    maximum matching of rows to columns over the entries that occur once finds them. The condition is sufficient, not
    necessary.

    Args:
        A: numbers, compared exactly; transpose a matrix with more rows than columns first.

    Returns:
        The columns and the function, or ``None`` if the condition does not hold.

    Example:
        >>> witness = full_rank_witness([[1, 2, 3], [2, 4, 6]])
        >>> exact_rank([[witness.function(x) for x in row] for row in [[1, 2, 3], [2, 4, 6]]])
        2
        >>> full_rank_witness([[1, 1], [2, 2]]) is None
        True
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    rows = fractions(A)
    if not rows or len(rows) > len(rows[0]):
        raise MatrixError(f"lemma 4 is about M × N matrices with 1 ≤ M ≤ N, not {len(rows)} rows: transpose it")
    counts = Counter(x for row in rows for x in row)
    unique = np.array([[counts[x] == 1 for x in row] for row in rows])
    columns = maximum_bipartite_matching(csr_array(unique), perm_type="column")
    if (columns < 0).any():
        return None
    return FullRankWitness(tuple(map(int, columns)), frozenset(row[j] for row, j in zip(rows, columns, strict=True)))


@dataclass(frozen=True)
class IncreasingBijection:
    """A strictly increasing piecewise linear function on the whole line, the identity outside its knots."""

    knots: tuple[Fraction, ...]
    values: tuple[Fraction, ...]
    rank: int
    """Exact rank of g(A) for the matrix A that was given."""

    def __call__(self, x: Any) -> Fraction:
        """Return g(x), exactly."""
        x = Fraction(x)
        if not self.knots or not self.knots[0] <= x < self.knots[-1]:
            return x
        i = bisect_right(self.knots, x) - 1
        (a, b), (u, v) = self.knots[i : i + 2], self.values[i : i + 2]
        return u + (v - u) * (x - a) / (b - a)


@typed
def increasing_bijection(A: Any, f: Callable[[Any], Any], *, seed: int = 0) -> IncreasingBijection:
    r"""Return an increasing bijection g for which g(A) has at least the rank of f(A) (Ganea et al. 2019, theorem 3).

    As in the proof in appendix C: with the distinct entries :math:`b_1 < b_2 < …` of A and ε a quarter of the least
    distance between two, g is piecewise linear through :math:`(b_i, c_i)` with :math:`|c_i - b_i| ≤ ε` and the identity
    at :math:`b_i ± 2ε` and outside. A nonzero minor of f(A) is a polynomial in the values that does not vanish
    everywhere, so almost all c give at least the rank of f(A). c is drawn, and the rank of g(A) computed exactly.

    Args:
        A: (N, M), numbers.
        f: any function from an entry, as `Fraction`, to a number.
        seed: seed of the draw.

    Example:
        >>> A = [[1, 2], [2, 4]]
        >>> g = increasing_bijection(A, lambda x: x == 4)  # f(A) has rank 1 as A has; g makes it 2
        >>> g.rank, g(0), g(2) < g(3) < g(4)
        (2, Fraction(0, 1), True)
    """
    rows = fractions(A)
    least = exact_rank([[Fraction(f(x)) for x in row] for row in rows])
    entries = sorted({x for row in rows for x in row})
    epsilon = min((b - a for a, b in pairwise(entries)), default=Fraction(1)) / 4
    generator = random.Random(seed)
    for _ in range(DRAWS):
        to = {b: b + epsilon * Fraction(generator.randint(-GRID, GRID), GRID) for b in entries}
        rank = exact_rank([[to[x] for x in row] for row in rows])
        if rank >= least:
            # Neighbouring entries may share the knot in the middle between them.
            ends = {end: end for b in entries for end in (b - 2 * epsilon, b + 2 * epsilon)}
            knots = sorted((ends | to).items())
            return IncreasingBijection(tuple(x for x, _ in knots), tuple(y for _, y in knots), rank)
    raise MatrixError(f"{DRAWS} draws did not reach rank {least}: try another seed")


@typed
def squared_ranks(N: int, trials: int, *, seed: int = 0, entries: int = 9) -> Counter[int]:
    """Count the ranks of A⊙A over random N × N whole-number matrices A of rank N − 1 (Ganea et al. 2019, theorem 6).

    The theorem says that almost all have full rank N, for N > 1. It holds from N = 3 on. At N = 2 the columns of a
    matrix of rank 1 are proportional, so those of its square are too: the rank stays 1, as theorem 5 says
    (:math:`\\binom{1 + 1}{2} = 1`). The proof's set of matrices with proportional columns is all of them there.

    Args:
        N: size, at least 2.
        trials: number of matrices of rank N − 1.
        seed: seed of the draw.
        entries: largest absolute value of the whole entries of the two factors.

    Returns:
        The number of matrices with each rank, exact.

    Example:
        >>> squared_ranks(2, 10), squared_ranks(4, 10)
        (Counter({1: 10}), Counter({4: 10}))
    """
    check_positive(trials=trials, entries=entries)
    if N < 2:
        raise ConfigurationError(f"N must be at least 2, not {N}: theorem 6 is about matrices of rank N − 1")
    generator = random.Random(seed)
    ranks: Counter[int] = Counter()
    while ranks.total() < trials:
        X, Y = ([[generator.randint(-entries, entries) for _ in range(N - 1)] for _ in range(N)] for _ in range(2))
        A = [[sum(map(int.__mul__, x, y)) for y in Y] for x in X]
        if exact_rank(A) == N - 1:
            ranks[exact_rank(applied(A, lambda x: x**2))] += 1
    return ranks


def applied(A: Sequence[Sequence[Any]], f: Callable[[Any], Any]) -> list[list[Any]]:
    """Return f(A), the function applied to every entry."""
    return [[f(x) for x in row] for row in A]
