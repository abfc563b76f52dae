"""Ganea et al. 2019, figure 8: contexts whose modes match, α = 1."""

from __future__ import annotations

from typing import final

from .lms_synthetic import DirichletFigure


@final
class LMSFigure8(DirichletFigure):
    """Contexts whose modes match, Dirichlet concentration α = 1 (Ganea et al. 2019, figure 8)."""

    alpha, metric = 1.0, "mode_match"
