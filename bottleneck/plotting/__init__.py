"""Drawing results: takes what was computed, computes nothing."""

from .spectrum_cdf import draw_spectrum_cdf
from .style import PAPER, check_format, save_figure

__all__ = ["PAPER", "check_format", "draw_spectrum_cdf", "save_figure"]
