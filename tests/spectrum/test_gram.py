"""What the Gram matrix resolves, and the reduction to tridiagonal form that it goes through on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from softmax_bottleneck.errors import MatrixError
from softmax_bottleneck.spectrum import host, lapack
from softmax_bottleneck.spectrum.choice import check_resolution
from softmax_bottleneck.spectrum.gram import RESOLUTION
from softmax_bottleneck.spectrum.rules import MARGIN, tolerance

from .methods import EPS, Matrix, built, centred, spectrum_of


def test_gram_keeps_the_row_centred_accuracy() -> None:
    """Summing C's Gram matrix and not A's: all-ones, here 10⁶ times larger, must not blind it."""
    rng = np.random.default_rng(2)
    matrix = rng.standard_normal((50, 5)) @ rng.standard_normal((5, 20)) + 1e6
    found = spectrum_of("gram", matrix, 8)
    expected = np.linalg.svd(centred(matrix), compute_uv=False)
    np.testing.assert_allclose(found.centered[:5], expected[:5], rtol=1e-12)


@pytest.mark.parametrize("size", [40, 120])
def test_gram_resolves_what_it_says(size: int) -> None:
    """No singular value above `RESOLUTION` is made up or lost: each is within it of the true one."""
    prescribed = np.concatenate([np.ones(size // 2), np.geomspace(1, 1e-6, size // 4)])
    found = spectrum_of("gram", built(prescribed, 2 * size, size))
    expected = np.sort(np.pad(prescribed, (0, size - prescribed.size)))[::-1]
    assert np.abs(found.values - expected).max() < RESOLUTION / 2
    assert RESOLUTION < 1e-6


def test_gram_refuses_what_it_cannot_resolve() -> None:
    shape = (60, 39)
    eps = RESOLUTION * MARGIN / tolerance(1.0, shape, 1.0)
    check_resolution("gram", shape=shape, eps=eps * 1.001)
    check_resolution("dense", shape=shape, eps=EPS)
    check_resolution("auto", shape=shape, eps=EPS)
    with pytest.raises(MatrixError, match=r"resolves σ/σ_1 down to 1\.2e-07, .* is 1\.1e-07: use method='tsqr'"):
        check_resolution("gram", shape=shape, eps=eps * 0.95)


@pytest.mark.parametrize("columns", [3, 8, 19])
def test_strips_add_to_the_lower_triangle_alone(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "SYRK_COLUMNS", 2)
    monkeypatch.setattr(host, "AT_ONCE", 4)
    rows = torch.randn(7, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    total = torch.arange(columns**2, dtype=torch.float64).reshape(columns, columns)
    expected = total + torch.einsum("ti,tj->ij", rows, rows).tril()
    host.Host().add_square(total, rows)
    torch.testing.assert_close(total, expected, rtol=4 * torch.finfo(torch.float64).eps, atol=1e-13)


def _symmetric(size: int) -> Matrix:
    """A random matrix with large entries outside the lower triangle, which must be neither read nor written."""
    matrix = np.random.default_rng(size).standard_normal((size, size))
    return np.asfortranarray(np.tril(matrix + matrix.T) + 1e6 * np.triu(np.ones((size, size)), 1))


@pytest.mark.parametrize("size", [lapack.BAND + 2, 97, 301])
@pytest.mark.parametrize("stages", ["sytrd_2stage", "sytrd", "missing"])
def test_eigenvalues_with_and_without_the_first_axis(size: int, stages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two stages, in one, and by a LAPACK that has not the two."""
    call = lapack.call
    monkeypatch.setattr(lapack, "SMALLEST", size + 1 if stages == "sytrd" else 0)
    if stages == "missing":
        monkeypatch.setattr(lapack, "call", lambda name, *a: call(name.replace("dsytrd_", "dno_such_"), *a))
    matrix = _symmetric(size)
    used = matrix.copy(order="F")
    diagonal, below, routines = lapack.tridiagonal(used)
    assert routines == ("sytrd" if stages == "missing" else stages)
    whole = np.tril(matrix) + np.tril(matrix, -1).T
    for start in (0, 1):
        found = scipy.linalg.eigvalsh_tridiagonal(diagonal[start:], below[start:])
        expected = np.linalg.eigvalsh(whole[start:, start:])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * size**0.5 * abs(expected).max())
    np.testing.assert_array_equal(np.triu(used, 1), np.triu(matrix, 1))


def test_a_refused_argument_is_named() -> None:
    values = np.ones(3)
    with pytest.raises(np.linalg.LinAlgError, match="dsterf refused its argument 1"):
        lapack.call("dsterf", -1, values, values)
