"""The curves that are drawn, against counting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from softmax_bottleneck.plotting import draw_spectrum_cdf
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


def test_the_softmax_curve_starts_at_its_zeros(ax: Axes, spectrum: Make) -> None:
    """Rank 7 of 40: at the left edge of the picture 82.5 % of the singular values have gone by."""
    draw_spectrum_cdf(ax, {"softmax": spectrum(np.append(np.geomspace(1, 1e-3, 7), np.zeros(33)))})
    (line,) = ax.lines
    x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    left = ax.get_xlim()[0]
    assert left == 1e-10
    assert y[x <= left].max() == 82.5
    assert x[y > 82.5].min() == pytest.approx(1e-3)


def test_curves_are_told_apart(ax: Axes, spectrum: Make) -> None:
    labels = ["softmax", "moc", "mos", "lms", "gss"]
    draw_spectrum_cdf(ax, {label: spectrum([1.0, 0.5]) for label in labels}, left=1e-6)
    assert [line.get_label() for line in ax.lines] == labels
    assert ax.get_legend() is not None
    assert [text.get_text() for text in ax.get_legend().get_texts()] == labels
    looks = {(line.get_color(), str(line._dash_pattern)) for line in ax.lines}  # type: ignore[attr-defined]
    assert len(looks) == 5
    assert len({str(line._dash_pattern) for line in ax.lines}) == 4  # type: ignore[attr-defined]
    assert ax.get_xlim() == (1e-6, 1.5)
    assert ax.get_ylim() == (0, 101)
    ax.figure.canvas.draw()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]


def test_a_zero_matrix_is_all_zeros(ax: Axes, spectrum: Make) -> None:
    draw_spectrum_cdf(ax, {"zero": spectrum([0.0, 0.0])})
    assert np.asarray(ax.lines[0].get_xdata()).tolist() == [2.0**-52]
    assert np.asarray(ax.lines[0].get_ydata()).tolist() == [100]
