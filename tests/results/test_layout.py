"""Panels beside and below each other."""

from __future__ import annotations

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from softmax_bottleneck.results.plotting.layout import Panel, lay_out


def _draw(ax: Axes) -> None:
    ax.plot([0, 1])


@pytest.mark.parametrize(("least_width", "first_row"), [(2.0, 3), (2.4, 2), (4.0, 1)])
def test_a_row_has_as_many_panels_as_fit(least_width: float, first_row: int) -> None:
    with mpl.rc_context({"figure.figsize": (7.0, 4.0), "figure.constrained_layout.use": True}):
        axes = lay_out(Figure(), [Panel(_draw)] * 3, least_width=least_width)
    tops = [ax.get_position().y1 for ax in axes]
    assert sum(top > tops[0] - 0.1 for top in tops) == first_row
