"""Figure styles as plain dictionaries of rcParams: join them with ``|``, apply them with ``rc_context``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.typing import RcKeyType

from ..errors import ConfigurationError
from ..files import replacing

Style = dict[RcKeyType, Any]

FONT: Style = {"font.size": 9.0, "axes.titlesize": 9.0, "legend.fontsize": 8.0, "legend.frameon": False}
LINES: Style = {"lines.linewidth": 1.5, "axes.spines.top": False, "axes.spines.right": False}
SIZE: Style = {"figure.figsize": (5.5, 3.2), "figure.dpi": 150.0, "figure.constrained_layout.use": True}
PAPER = FONT | LINES | SIZE
"""One column and a half of a paper."""

FORMATS = ("png", "pdf", "svg")


def check_format(path: Path) -> str:
    """Return a figure's format; `ConfigurationError` for a suffix other than png, pdf or svg."""
    suffix = path.suffix.removeprefix(".")
    if suffix not in FORMATS:
        raise ConfigurationError(f"a figure is written as {', '.join(FORMATS)}, not {path.name!r}")
    return suffix


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as its suffix says, whole or not at all; the same figure gives the same bytes.

    Raises:
        ConfigurationError: for a suffix other than png, pdf or svg.
    """
    suffix = check_format(path)
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[suffix]
    # Without a salt of its own an SVG names its parts at random.
    with replacing(path) as temporary, mpl.rc_context({"svg.hashsalt": "softmax-bottleneck"}):
        figure.savefig(temporary, format=suffix, metadata=undated)
