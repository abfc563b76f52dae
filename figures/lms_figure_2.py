"""Ganea et al. 2019, figure 2: contexts whose modes match, α = 0.1."""

from __future__ import annotations

from typing import final

from .lms_synthetic import DirichletFigure


@final
class LMSFigure2(DirichletFigure):
    """Contexts whose modes match, Dirichlet concentration α = 0.1 (Ganea et al. 2019, figure 2)."""

    alpha, metric = 0.1, "mode_match"
