"""Ganea et al. 2019, figure 7: KL divergence, α = 0.01."""

from __future__ import annotations

from typing import final

from .lms_synthetic import DirichletFigure


@final
class LMSFigure7(DirichletFigure):
    """Mean KL divergence of the fit from the truth, Dirichlet concentration α = 0.01 (Ganea et al. 2019, figure 7)."""

    alpha, metric = 0.01, "kl"
