"""Every ending of a program has its name."""

from __future__ import annotations

import numpy as np
import pytest

from softmax_bottleneck.theory.linear_program import minimize

ONE = np.ones(1)


def test_an_optimum_with_its_multipliers() -> None:
    """max x + 2y with x + y ≤ 4, y ≤ 3 and x − y = −2: one more of either right side moves the minimum by these."""
    rows, limits, equal = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([4.0, 3.5]), np.array([[1.0, -1.0]])
    objective = np.array([-1.0, -2.0])

    def value(first: float, second: float) -> float:
        right = limits + np.array([first, 0.0])
        return minimize(objective, rows=rows, limits=right, equal_rows=equal, equal_to=[second], bounds=(0, None)).value  # type: ignore[union-attr]

    found = minimize(objective, rows=rows, limits=limits, equal_rows=equal, equal_to=[-2.0], bounds=(0, None))
    assert found is not None
    np.testing.assert_allclose(found.x, [1, 3])
    assert found.value == pytest.approx(-7)
    assert value(0.1, -2.0) - found.value == pytest.approx(-0.1 * found.multipliers[0])
    assert value(0.0, -1.9) - found.value == pytest.approx(0.1 * found.equal_multipliers[0])


def test_no_optimum() -> None:
    assert minimize(ONE, rows=[[1.0]], limits=[-1.0], bounds=(0, None)) is None
    assert minimize(-ONE, bounds=(0, None)) is None


def test_out_of_time() -> None:
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((400, 200))
    found = minimize(generator.standard_normal(200), rows=rows, limits=np.ones(400), bounds=(-1, 1), seconds=1e-9)
    assert found is None
