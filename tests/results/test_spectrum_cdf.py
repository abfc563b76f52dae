"""The cumulative percentages and their plot, against counting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from softmax_bottleneck.spectrum import Spectrum

Make = Callable[[ArrayLike], Spectrum]


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=20))
def test_cdf_counts(spectrum: Make, values: list[float]) -> None:
    ordered = sorted(values, reverse=True)
    rows = spectrum(ordered).curves()
    normalized, percent = rows.loc[rows["part"] == "raw", ["normalized", "percent"]].to_numpy()[::-1].T
    largest = ordered[0] or 1.0
    known = [value / largest for value in ordered[::-1] if value > 2.0**-52 * largest]
    assert normalized.tolist() == [2.0**-52] * (len(known) < len(values)) + known
    assert (np.diff(percent) > 0).all()
    assert percent[-1] == pytest.approx(100)
    for x in normalized:
        last = np.flatnonzero(normalized == x)[-1]
        at_or_below = sum(value / largest <= x for value in values)
        assert percent[last] == pytest.approx(100 * at_or_below / len(values))
