"""The rank of a matrix after a power is taken of every entry (Ganea et al. 2019, §4, theorem 5).

Ranks are computed in exact rational arithmetic, in which a float is the binary fraction it stores. The functions are
for matrices of tens of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from numbers import Integral, Number
from typing import Any

from ..core.checks import check_positive, typed
from ..errors import ConfigurationError, MatrixError


def exact_rank(matrix: Sequence[Sequence[Any]]) -> int:
    """Return the exact rank of a matrix, by Gaussian elimination in rational arithmetic; for small matrices.

    Args:
        matrix: rows of equal length of whole numbers, fractions or floats, or an array or tensor; a float is the binary
            fraction it stores.

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
    x = x.item() if hasattr(x, "item") else x  # of an array or a tensor
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
