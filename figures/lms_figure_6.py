"""LMS paper, figure 6: percentage of contexts whose modes match, α = 0.01."""

from .lms_synthetic import LMSFigure

FIGURE = LMSFigure(alpha=0.01, metric="mode_match")
compute, draw, save = FIGURE.compute, FIGURE.draw, FIGURE.save
