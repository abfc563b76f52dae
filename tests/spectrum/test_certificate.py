"""A decomposition that goes wrong silently is caught: LAPACK is replaced by one that does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray

from softmax_bottleneck.errors import MatrixError
from softmax_bottleneck.spectrum import TSQR, Dense, Factored, Gram, SpectrumMethod, measure, singular_values

Matrix = NDArray[np.float64]

METHODS: dict[str, tuple[Callable[[int], SpectrumMethod], str]] = {
    "dense": (Dense, "svdvals"),
    "gram": (Gram, "eigvalsh_tridiagonal"),
    "tsqr": (TSQR, "eigvalsh_tridiagonal"),
    "factored": (lambda columns: Factored(np.eye(columns)), "svdvals"),
}


def off_by_one_part_in_a_million(values: Matrix) -> Matrix:
    return values * (1 + 1e-6)


def largest_lost(values: Matrix) -> Matrix:
    return np.where(values == values.max(), 0.0, values)


def nan(values: Matrix) -> Matrix:
    return np.append(values[1:], np.nan)


def huge(values: Matrix) -> Matrix:
    return np.append(values[1:], 1e200)


@pytest.mark.parametrize("call", [1, 2], ids=["raw", "row-centred"])
@pytest.mark.parametrize("wrong", [off_by_one_part_in_a_million, largest_lost, nan, huge])
@pytest.mark.parametrize("method", METHODS)
def test_wrong_values_are_caught(
    monkeypatch: pytest.MonkeyPatch, method: str, wrong: Callable[[Matrix], Matrix], call: int
) -> None:
    make, routine = METHODS[method]
    right = getattr(scipy.linalg, routine)
    calls = 0

    def broken(*args: Any, **options: Any) -> Matrix:
        nonlocal calls
        calls += 1
        values = right(*args, **options)
        return wrong(values) if calls == call else values

    monkeypatch.setattr(scipy.linalg, routine, broken)
    matrix = np.random.default_rng(0).standard_normal((20, 8))
    finds = "returned values that are not finite" if wrong is nan else "broke its certificate: Σσ² differs"
    with pytest.raises(MatrixError, match=f"the {method} decomposition {finds}.* try "):
        measure([matrix], make(8))
    assert calls == 2


@pytest.mark.parametrize("method", METHODS)
def test_values_of_a_zero_matrix_are_checked_too(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    make, routine = METHODS[method]
    monkeypatch.setattr(scipy.linalg, routine, lambda *_, **__: np.full(3, 1e-3))
    with pytest.raises(MatrixError, match="broke its certificate"):
        measure([np.zeros((5, 3))], make(3))


@pytest.mark.parametrize("method", METHODS)
def test_a_decomposition_that_does_not_converge(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    make, routine = METHODS[method]

    def fails(*args: Any, **options: Any) -> Matrix:
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(scipy.linalg, routine, fails)
    with pytest.raises(MatrixError, match=rf"the {method} decomposition failed \(SVD did not converge\); try another"):
        measure([np.eye(3)], make(3))


@pytest.mark.parametrize(("size", "word"), [(1e200, "large"), (1e-160, "small")])
@pytest.mark.parametrize("method", METHODS)
def test_entries_that_cannot_be_squared(method: str, size: float, word: str) -> None:
    """‖A‖² would be infinite, or a subnormal with hardly a digit: no certificate could be given."""
    with np.errstate(over="ignore"), pytest.raises(MatrixError, match=f"too {word} for its entries to be squared"):
        measure([np.full((5, 3), size)], METHODS[method][0](3))


def test_the_certificate_is_reported() -> None:
    matrix = np.random.default_rng(0).standard_normal((30, 20))
    found = singular_values(matrix)
    norm = np.linalg.norm(matrix) ** 2
    assert abs((found.values**2).sum() - norm) / norm <= found.frobenius_relative_error + 1e-15 < 1e-13
