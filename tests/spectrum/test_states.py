"""What a method made of some rows joins what it made of others, here or on another device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from softmax_bottleneck.spectrum import TSQR, Accelerator, Dense, Gram, WideGram

from .methods import METHODS, spectrum_of


@pytest.mark.parametrize("method", METHODS)
def test_states_of_two_halves_merge_to_the_whole(method: str) -> None:
    matrix = np.random.default_rng(0).standard_normal((45, 9))
    parts = [METHODS[method](9) for _ in range(3)]
    for part, rows in zip(parts, np.split(matrix, [7, 30]), strict=True):
        part.update(rows)
    for other in parts[1:]:
        parts[0].merge(other.state())
    merged, whole = parts[0].finish(), spectrum_of(method, matrix)
    assert merged.shape == whole.shape == (45, 9)
    np.testing.assert_allclose(merged.values, whole.values, rtol=1e-10)
    np.testing.assert_allclose(merged.centered, whole.centered, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", [Dense, Gram, WideGram, TSQR])
def test_a_state_from_one_arithmetic_is_another_ones_too(method: type[Gram]) -> None:
    """On the CPU ``syrk`` leaves a triangle empty; the first choice of routines must not stumble over it."""
    matrix = np.random.default_rng(0).standard_normal((45, 9)) + 2.0
    first, second = method(9), method(9, arithmetic=Accelerator(torch.device("cpu")))
    first.update(matrix)
    second.restore(first.state())
    found, expected = second.finish(), first.finish()
    assert found.driver in ("cpu syevd", "cpu svdvals")
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-10)
    np.testing.assert_allclose(found.centered, expected.centered, rtol=1e-10, atol=1e-12)
