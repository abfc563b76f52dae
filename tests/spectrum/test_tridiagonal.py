"""Reductions to tridiagonal form against the eigenvalues of the matrix itself."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from softmax_bottleneck.spectrum import lapack


def _symmetric(size: int) -> np.ndarray:
    """A random matrix with large entries outside the lower triangle, which must be neither read nor written."""
    matrix = np.random.default_rng(size).standard_normal((size, size))
    return np.asfortranarray(np.tril(matrix + matrix.T) + 1e6 * np.triu(np.ones((size, size)), 1))


def _agrees(matrix: np.ndarray, diagonal: np.ndarray, below: np.ndarray) -> None:
    whole = np.tril(matrix) + np.tril(matrix, -1).T
    for start in (0, 1):
        found = scipy.linalg.eigvalsh_tridiagonal(diagonal[start:], below[start:])
        expected = np.linalg.eigvalsh(whole[start:, start:])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * len(matrix) ** 0.5 * abs(expected).max())


@pytest.mark.parametrize("size", [lapack.BAND + 2, 97, 301])
@pytest.mark.parametrize("stages", ["sytrd_2stage", "sytrd"])
def test_eigenvalues_with_and_without_the_first_axis(size: int, stages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack, "SMALLEST", 0 if stages == "sytrd_2stage" else size + 1)
    matrix = _symmetric(size)
    used = matrix.copy(order="F")
    diagonal, below, routines = lapack.tridiagonal(used)
    assert routines == stages
    _agrees(matrix, diagonal, below)
    np.testing.assert_array_equal(np.triu(used, 1), np.triu(matrix, 1))


def test_a_lapack_without_two_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack, "SMALLEST", 0)
    call = lapack.call

    def without(name: str, *arguments: object) -> None:
        call(name.replace("dsytrd_", "dno_such_"), *arguments)

    monkeypatch.setattr(lapack, "call", without)
    matrix = _symmetric(120)
    diagonal, below, routines = lapack.tridiagonal(matrix.copy(order="F"))
    assert routines == "sytrd"
    _agrees(matrix, diagonal, below)


def test_a_refused_argument_is_named() -> None:
    values = np.ones(3)
    with pytest.raises(np.linalg.LinAlgError, match="dsterf refused its argument 1"):
        lapack.call("dsterf", -1, values, values)
