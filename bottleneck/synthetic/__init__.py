"""The Dirichlet experiments of Ganea et al. 2019 (§5.1, appendices G and H), and the least divergence attainable."""

from ..theory.context_vectors import Attainable, attainable
from .cells import Cell, CellResult, run
from .dirichlet import DEFAULT_MEMORY, DirichletBlocks, Targets, sample_dirichlet_log_probs
from .fit import Fit, FitConfig, fit
from .grid import PRESETS, grid, preset, run_grid
from .launch import submit
from .metrics import Agreement, agreement, expected_pairwise_kl, matrices, reachable
from .models import MODELS
from .summary import summarize, table

__all__ = [
    "DEFAULT_MEMORY", "MODELS", "PRESETS", "Agreement", "Attainable", "Cell", "CellResult", "DirichletBlocks",
    "Fit", "FitConfig", "Targets", "agreement", "attainable", "expected_pairwise_kl", "fit", "grid", "matrices",
    "preset", "reachable", "run", "run_grid", "sample_dirichlet_log_probs", "submit", "summarize", "table",
]  # fmt: skip
