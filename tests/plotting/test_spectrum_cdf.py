"""The cumulative percentages and their plot, against counting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from softmax_bottleneck.spectrum import Spectrum

Make = Callable[[ArrayLike], Spectrum]


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=20))
def test_cdf_counts(spectrum: Make, values: list[float]) -> None:
    ordered = sorted(values, reverse=True)
    normalized, percent = spectrum(ordered).cdf()
    largest = ordered[0] or 1.0
    known = [value / largest for value in ordered[::-1] if value > 2.0**-52 * largest]
    assert normalized.tolist() == [2.0**-52] * (len(known) < len(values)) + known
    assert (np.diff(percent) > 0).all()
    assert percent[-1] == pytest.approx(100)
    for x in normalized:
        last = np.flatnonzero(normalized == x)[-1]
        at_or_below = sum(value / largest <= x for value in values)
        assert percent[last] == pytest.approx(100 * at_or_below / len(values))


def test_the_curve_steps_at_each_value(ax: Axes, spectrum: Make) -> None:
    assert spectrum([4.0, 2.0, 1.0, 0.0]).plot(ax, label="a") is ax
    (line,) = ax.lines
    assert np.asarray(line.get_xdata()).tolist() == [2.0**-52, 0.25, 0.5, 1.0]
    assert np.asarray(line.get_ydata()).tolist() == [25, 50, 75, 100]
    assert line.get_drawstyle() == "steps-post"
    assert line.get_label() == "a"
    assert ax.get_xscale() == "log"


def test_plot_without_axes_takes_the_current_ones(ax: Axes, spectrum: Make) -> None:
    plt.sca(ax)
    assert spectrum([1.0]).plot() is ax
