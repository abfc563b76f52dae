"""Ranks of matrices of whole numbers and fractions, without roundoff."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from numbers import Integral, Number
from typing import Any

from ..errors import MatrixError


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
