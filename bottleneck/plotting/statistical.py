"""What seaborn is used for: the theme, the palette, and lines of means with their spread."""

from __future__ import annotations

from typing import Any

import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.typing import RcKeyType

PALETTE: tuple[str, ...] = tuple(seaborn.color_palette("colorblind").as_hex())
"""Ten colours that people with colour blindness tell apart."""
THEME: dict[RcKeyType, Any] = {
    key: value for key, value in seaborn.axes_style("ticks").items() if not key.startswith(("font.", "image."))
}


def draw_means(ax: Axes, data: pd.DataFrame, x: str, y: str, **line: Any) -> None:
    """Draw the mean of repeated measurements against x, with a band of one standard deviation to either side.

    Args:
        ax: drawn into.
        data: one row a measurement.
        x: a column.
        y: a column; rows without a number are left out.
        line: what `Axes.plot` takes.
    """
    seaborn.lineplot(data.dropna(subset=[y]), x=x, y=y, errorbar="sd", err_kws={"linewidth": 0}, ax=ax, **line)
    ax.set(xlabel="", ylabel="")
