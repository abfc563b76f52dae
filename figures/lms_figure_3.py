"""LMS paper, figure 3: average KL(P* ‖ Q), α = 0.1."""

from .lms_synthetic import LMSFigure

FIGURE = LMSFigure(alpha=0.1, metric="kl")
compute, draw, save = FIGURE.compute, FIGURE.draw, FIGURE.save
