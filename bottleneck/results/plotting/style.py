"""Figure styles as plain dictionaries of rcParams: join them with ``|``, apply them with ``rc_context``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import matplotlib as mpl
import seaborn
from matplotlib.figure import Figure

from ...core.files import MAKER, replacing
from ...errors import ConfigurationError, look_up

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

Style: TypeAlias = "dict[RcKeyType, Any]"

BASE: Style = {
    **{key: value for key, value in seaborn.axes_style("ticks").items() if not key.startswith(("font.", "image."))},
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.92",
    "grid.linewidth": 0.6,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.0,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.08,  # inches: tick labels of neighbouring panels stay apart
    "figure.dpi": 150.0,
    "savefig.dpi": 150.0,
    "pdf.fonttype": 42,  # TrueType: type 3 fonts are refused by many venues
    "ps.fonttype": 42,
}


def _style(inches: float, size: float, family: str = "STIXGeneral", mathematics: str = "stix") -> Style:
    """Return a style of this width, whose ticks and legends are one point smaller than titles and axis labels.

    STIX is matplotlib's font that resembles Times, the font of the three venues.
    """
    large: Style = {"font.size": size, "axes.titlesize": size, "axes.labelsize": size}
    small: Style = {"xtick.labelsize": size - 1, "ytick.labelsize": size - 1, "legend.fontsize": size - 1}
    fonts: Style = {"font.family": family, "mathtext.fontset": mathematics}
    return BASE | large | small | fonts | {"figure.figsize": (inches, 0.62 * inches)}


STYLES: dict[str, Style] = {
    "screen": _style(7.0, 10.0, "DejaVu Sans", "dejavusans") | {"lines.linewidth": 1.6, "lines.markersize": 5.0},
    "iclr": _style(5.5, 9.0),
    "icml": _style(3.25, 8.0),  # one of two columns
    "icml-wide": _style(6.75, 9.0),
    "neurips": _style(5.5, 9.0),
}
"""Styles by name; the widths are those of the venues' style files."""

FORMATS = ("png", "pdf", "svg")


def find_style(name: str) -> Style:
    """Return the style of this name; `ConfigurationError` lists the known ones."""
    return look_up("style", name, STYLES)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure atomically, in the format of its suffix; the same figure gives the same bytes.

    Raises:
        ConfigurationError: for a suffix other than png, pdf or svg.
    """
    suffix = path.suffix.removeprefix(".")
    if suffix not in FORMATS:
        raise ConfigurationError(f"a figure is written as {', '.join(FORMATS)}, not {path.name!r}")
    about = {"pdf": {"Creator": MAKER, "CreationDate": None}, "svg": {"Creator": MAKER, "Date": None}}
    # Without a fixed salt the ids in an SVG are random.
    with replacing(path) as temporary, mpl.rc_context({"svg.hashsalt": MAKER}):
        figure.savefig(temporary, format=suffix, metadata=about.get(suffix, {"Software": MAKER}))
