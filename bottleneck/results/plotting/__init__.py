"""Functions and styles to draw figures and tables of computed results."""

from ..tables import latex, markdown
from .layout import draw_means
from .looks import HEADS, Look, head_of, looks, plain
from .style import STYLES, find_style, save_figure

__all__ = [
    "HEADS", "STYLES", "Look", "draw_means", "find_style", "head_of", "latex", "looks", "markdown", "plain",
    "save_figure",
]  # fmt: skip
