"""LMS paper, figure 2: percentage of contexts whose modes match, α = 0.1."""

from .lms_synthetic import LMSFigure

FIGURE = LMSFigure(alpha=0.1, metric="mode_match")
compute, draw, save = FIGURE.compute, FIGURE.draw, FIGURE.save
