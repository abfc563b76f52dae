"""Theme, palette and lines of means with standard deviations, by seaborn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import seaborn
from matplotlib.axes import Axes

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

PALETTE: tuple[str, ...] = tuple(seaborn.color_palette("colorblind").as_hex())
"""Ten colours that colour-blind people can distinguish."""
THEME: dict[RcKeyType, Any] = {
    key: value for key, value in seaborn.axes_style("ticks").items() if not key.startswith(("font.", "image."))
}


def draw_means(ax: Axes, data: pd.DataFrame, x: str, y: str, **line: Any) -> None:
    """Draw the mean of repeated measurements against x, with a band of one standard deviation on either side.

    Args:
        ax: axes to draw into.
        data: one row for each measurement.
        x: name of a column.
        y: name of a column; rows without a number are left out.
        line: keyword arguments of `Axes.plot`.
    """
    seaborn.lineplot(data.dropna(subset=[y]), x=x, y=y, errorbar="sd", err_kws={"linewidth": 0}, ax=ax, **line)
    ax.set(xlabel="", ylabel="")
