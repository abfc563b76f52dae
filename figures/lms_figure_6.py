"""Ganea et al. 2019, figure 6: contexts whose modes match, α = 0.01."""

from __future__ import annotations

from typing import final

from .lms_synthetic import DirichletFigure


@final
class LMSFigure6(DirichletFigure):
    """Contexts whose modes match, Dirichlet concentration α = 0.01 (Ganea et al. 2019, figure 6)."""

    alpha, metric = 0.01, "mode_match"
