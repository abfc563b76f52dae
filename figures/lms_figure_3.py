"""Ganea et al. 2019, figure 3: KL divergence, α = 0.1."""

from __future__ import annotations

from typing import final

from .lms_synthetic import DirichletFigure


@final
class LMSFigure3(DirichletFigure):
    """Mean KL divergence of the fit from the truth, Dirichlet concentration α = 0.1 (Ganea et al. 2019, figure 3)."""

    alpha, metric = 0.1, "kl"
