"""A decomposition that fails, or goes wrong silently, is caught and done again another way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from numpy.typing import NDArray

from softmax_bottleneck.errors import MatrixError
from softmax_bottleneck.spectrum import (
    TSQR,
    Accelerator,
    Arithmetic,
    Dense,
    Factored,
    Gram,
    Host,
    SpectrumMethod,
    WideGram,
    decompose,
    host,
)
from softmax_bottleneck.spectrum.compute import extended, started

Matrix = NDArray[np.float64]

FIRST_CHOICE: dict[str, tuple[Callable[..., SpectrumMethod], Any, str]] = {
    "dense": (Dense, scipy.linalg, "svdvals"),
    "gram": (Gram, scipy.linalg, "eigvalsh_tridiagonal"),
    "gram, wide": (WideGram, torch.linalg, "eigvalsh"),
    "tsqr": (TSQR, host, "bidiagonal_values"),
    "factored": (lambda columns, **options: Factored(np.eye(columns), **options), host, "bidiagonal_values"),
}
"""Each method, and where its first choice of routine is found."""
SECOND_CHOICE = {"gram": "eigh", "gram, wide": "eigh", "dense": "svd", "tsqr": "svd", "factored": "svd"}
"""The routine of SciPy that the second choice calls."""


def off_by_one_part_in_a_million(values: Any) -> Any:
    return values * (1 + 1e-6)


def largest_lost(values: Any) -> Any:
    return (torch.where if isinstance(values, torch.Tensor) else np.where)(values == values.max(), 0.0, values)


def nan(values: Any) -> Any:
    return values * np.nan


def huge(values: Any) -> Any:
    return values * 0 + 1e200


def not_converged(values: Any) -> Any:
    raise np.linalg.LinAlgError("it did not converge")


WRONG = [off_by_one_part_in_a_million, largest_lost, nan, huge, not_converged]
FINDS = {nan: "returned values that are not finite", not_converged: "it did not converge"}
"""What the error says, where it is not that Σσ² differs from ‖A‖²_F."""


def break_call(
    monkeypatch: pytest.MonkeyPatch, module: Any, routine: str, wrong: Callable[[Any], Any], call: int | None = None
) -> None:
    """Let the routine's nth call, or every one, return what is wrong."""
    right, calls = getattr(module, routine), 0

    def broken(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        values = right(*args, **options)
        return wrong(values) if call in (None, calls) else values

    monkeypatch.setattr(module, routine, broken)


@pytest.fixture
def matrix() -> Matrix:
    return np.random.default_rng(0).standard_normal((20, 8))


@pytest.mark.parametrize("call", [1, 2], ids=["raw", "row-centred"])
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("method", FIRST_CHOICE)
def test_wrong_values_are_computed_again_by_another_routine(
    monkeypatch: pytest.MonkeyPatch, matrix: Matrix, method: str, wrong: Callable[[Any], Any], call: int
) -> None:
    make, module, routine = FIRST_CHOICE[method]
    usual = decompose([matrix], make(8))
    with monkeypatch.context() as patch:
        break_call(patch, module, routine, wrong, call)
        found = decompose([matrix], make(8))
    assert found.driver != usual.driver
    np.testing.assert_allclose(found.values, np.linalg.svd(matrix, compute_uv=False), rtol=1e-12)
    centred = np.linalg.svd(matrix - matrix.mean(1, keepdims=True), compute_uv=False)
    np.testing.assert_allclose(found.centered[:7], centred[:7], rtol=1e-12)
    assert found.frobenius_relative_error < 1e-13


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("method", FIRST_CHOICE)
def test_wrong_values_of_every_choice_are_an_error(
    monkeypatch: pytest.MonkeyPatch, matrix: Matrix, method: str, wrong: Callable[[Any], Any]
) -> None:
    make, module, routine = FIRST_CHOICE[method]
    break_call(monkeypatch, module, routine, wrong)
    break_call(monkeypatch, scipy.linalg, SECOND_CHOICE[method], wrong)
    finds = FINDS.get(wrong, "Σσ² differs from ‖A‖²_F by a factor of .*")
    with pytest.raises(MatrixError, match=rf"the {make(8).name} decomposition failed \(.*{finds}\); try another"):
        decompose([matrix], make(8))


@pytest.mark.parametrize("method", FIRST_CHOICE)
def test_values_of_a_zero_matrix_are_checked_too(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    make, module, routine = FIRST_CHOICE[method]
    break_call(monkeypatch, module, routine, lambda values: values + 1e-3)
    found = decompose([np.zeros((5, 3))], make(3))
    assert not found.values.any()
    assert found.driver.startswith(("gesvd", "syevr"))


@pytest.mark.parametrize("method", FIRST_CHOICE)
def test_an_accelerator_that_fails_hands_over_to_the_cpu(
    monkeypatch: pytest.MonkeyPatch, matrix: Matrix, method: str
) -> None:
    device = Accelerator(torch.device("cpu"))

    def fails(*args: Any, **options: Any) -> Any:
        raise torch.OutOfMemoryError("no memory left")

    for name in ("gram_spectra", "triangle_spectra", "singular_values", "eigenvalues"):
        monkeypatch.setattr(Accelerator, name, fails)
    found = decompose([matrix], FIRST_CHOICE[method][0](8, arithmetic=device))
    assert found.driver == decompose([matrix], FIRST_CHOICE[method][0](8)).driver
    np.testing.assert_allclose(found.values, np.linalg.svd(matrix, compute_uv=False), rtol=1e-12)


@pytest.mark.parametrize("arithmetic", [Host(), Accelerator(torch.device("cpu"))], ids=["host", "accelerator"])
@pytest.mark.parametrize("method", FIRST_CHOICE)
def test_the_careful_routines_agree_with_the_usual_ones(method: str, arithmetic: Arithmetic, matrix: Matrix) -> None:
    """Both from one state: the first choice works in place and must leave it for the second."""
    shifted = matrix + 5.0
    whole = FIRST_CHOICE[method][0](8, arithmetic=arithmetic)
    stream = extended(whole, started(whole), shifted.copy())
    usual, careful = (whole.decompose(stream, arithmetic, careful=careful) for careful in (False, True))
    for name in ("raw", "centered"):
        largest = slice(-8 if name == "raw" else -7, None)  # centring leaves one zero, which routines may leave out
        ours, theirs = (np.sort(getattr(spectra, name))[largest] for spectra in (usual, careful))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-6 if "gram" in method else 1e-13)
    np.testing.assert_allclose(np.sort(usual.raw)[-8:], np.linalg.svd(shifted, compute_uv=False)[::-1], rtol=1e-12)


@pytest.mark.parametrize(("size", "word"), [(1e200, "large"), (1e-160, "small")])
@pytest.mark.parametrize("method", FIRST_CHOICE)
def test_entries_that_cannot_be_squared(method: str, size: float, word: str) -> None:
    """‖A‖² would be infinite, or a subnormal with hardly a digit: no certificate could be given."""
    with np.errstate(over="ignore"), pytest.raises(MatrixError, match=f"too {word} for its entries to be squared"):
        decompose([np.full((5, 3), size)], FIRST_CHOICE[method][0](3))
