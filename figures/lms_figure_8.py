"""LMS paper, figure 8: percentage of contexts whose modes match, α = 1."""

from .lms_synthetic import LMSFigure

FIGURE = LMSFigure(alpha=1.0, metric="mode_match")
compute, draw, save = FIGURE.compute, FIGURE.draw, FIGURE.save
