"""The grids of the figures of Ganea et al. 2019.

The paper states the models, the concentrations and N = 10⁵ contexts in its text; the vocabularies and dimensions stand
only in its figures, and those here are this library's choice. The options of ``bottleneck synthetic`` override a
preset. The command ``bottleneck synthetic --preset NAME --profile`` measures the time of one pass; a fit takes between
120 and 1,240 passes. N = 10⁵ needs a GPU; on two processor cores take ``--contexts 1000``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import look_up
from .cells import Cell
from .fit import FitConfig
from .grid import grid


@dataclass(frozen=True, kw_only=True)
class SyntheticPreset:
    """One grid."""

    alphas: tuple[float, ...]
    """Dirichlet concentrations."""
    vocabs: tuple[int, ...]
    """M."""
    dims: tuple[int, ...]
    """D."""
    contexts: int
    """T, N in Ganea et al. 2019."""
    models: tuple[str, ...] = ("softmax", "mos", "lms")
    """Names of `MODELS`; the default is the three that Ganea et al. 2019 compare."""
    seeds: int = 3
    """Number of seeds for each model and size."""
    fit: FitConfig = field(default_factory=FitConfig)
    """How each cell is fitted."""

    def cells(self) -> list[Cell]:
        """Return every combination as a cell; see `grid`."""
        return grid(self.models, self.alphas, self.vocabs, self.dims, self.seeds, contexts=self.contexts, fit=self.fit)


def _paper(alpha: float) -> SyntheticPreset:
    return SyntheticPreset(alphas=(alpha,), vocabs=(100, 1000, 10_000), dims=(2, 5, 10, 20, 50, 100), contexts=100_000)


DEFAULT = SyntheticPreset(alphas=(0.1,), vocabs=(100,), dims=(2, 5, 10, 20), contexts=500, seeds=2)
"""A grid that takes a minute or two on two cores."""
PRESETS = {
    "paper-fig2": _paper(0.1),  # mode matching
    "paper-fig3": _paper(0.1),  # KL(P* ‖ Q) of the same cells
    "paper-fig6": _paper(0.01),  # mode matching
    "paper-fig7": _paper(0.01),  # KL(P* ‖ Q) of the same cells
    "paper-fig8": _paper(1.0),  # mode matching
}


def preset(name: str | None) -> SyntheticPreset:
    """Return a preset, or for ``None`` the default grid of ``bottleneck synthetic``.

    Raises:
        ConfigurationError: for an unknown name.
    """
    return DEFAULT if name is None else look_up("preset", name, PRESETS)
