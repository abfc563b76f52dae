"""Drawing results: takes what was computed, computes nothing."""

from .looks import HEADS, Look, head_of, looks, plain
from .statistical import draw_means
from .style import STYLES, check_format, find_style, save_figure
from .tables import latex, markdown

__all__ = [
    "HEADS",
    "STYLES",
    "Look",
    "check_format",
    "draw_means",
    "find_style",
    "head_of",
    "latex",
    "looks",
    "markdown",
    "plain",
    "save_figure",
]
