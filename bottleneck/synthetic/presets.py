"""The grids of the LMS paper's figures.

The text gives the models, the concentrations and N = 10⁵ contexts; the vocabularies and dimensions of its axes are in
the drawings alone, so those here are this library's. The options of ``bottleneck synthetic`` replace what a preset
says, and ``bottleneck synthetic --preset NAME --profile`` times a pass on the machine at hand: a fit takes 120 passes
at least and 1,240 at most. N = 10⁵ asks for a GPU; on two cores take ``--contexts 1000``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class SyntheticPreset:
    """One grid."""

    alpha: float
    """The Dirichlet concentration."""
    vocabs: tuple[int, ...]
    """M."""
    dims: tuple[int, ...]
    """D."""
    contexts: int
    """T, the paper's N."""
    models: tuple[str, ...] = ("softmax", "mos", "lms")
    """The three the paper compares."""
    seeds: int = 3
    """Runs of each cell."""
    summary: str = ""
    """What its figure shows."""


def _paper(alpha: float, summary: str) -> SyntheticPreset:
    return SyntheticPreset(
        alpha=alpha, vocabs=(100, 1000, 10_000), dims=(2, 5, 10, 20, 50, 100), contexts=100_000, summary=summary
    )


DEFAULT = SyntheticPreset(
    alpha=0.1, vocabs=(100,), dims=(2, 5, 10, 20), contexts=500, seeds=2, summary="a minute or two on two cores"
)
PRESETS = {
    "paper-fig2": _paper(0.1, "mode matching at α = 0.1"),
    "paper-fig3": _paper(0.1, "KL(P* ‖ Q) at α = 0.1: the cells of paper-fig2"),
    "paper-fig6": _paper(0.01, "mode matching at α = 0.01"),
    "paper-fig7": _paper(0.01, "KL(P* ‖ Q) at α = 0.01: the cells of paper-fig6"),
    "paper-fig8": _paper(1.0, "mode matching at α = 1"),
}


def preset(name: str | None) -> SyntheticPreset:
    """Return a preset, or for ``None`` the grid of the plain command.

    Raises:
        ConfigurationError: for an unknown name.
    """
    if name is None:
        return DEFAULT
    if name not in PRESETS:
        raise ConfigurationError(f"unknown preset {name!r}; known presets are {', '.join(PRESETS)}")
    return PRESETS[name]
