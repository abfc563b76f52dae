"""LMS paper, figure 7: average KL(P* ‖ Q), α = 0.01."""

from .lms_synthetic import LMSFigure

FIGURE = LMSFigure(alpha=0.01, metric="kl")
compute, draw, save = FIGURE.compute, FIGURE.draw, FIGURE.save
