"""Drawing results: takes what was computed, computes nothing."""

from .spectrum_cdf import draw_spectrum_cdf
from .style import PAPER, save_figure

__all__ = ["PAPER", "draw_spectrum_cdf", "save_figure"]
