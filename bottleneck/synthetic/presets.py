"""The grids of the figures of Ganea et al. 2019, as arguments of `grid`.

The paper states the models, the concentrations and N = 10⁵ contexts in its text; the vocabularies and dimensions stand
only in its figures, and those here are this library's choice. The options of ``bottleneck synthetic`` override a
preset. The command ``bottleneck synthetic --preset NAME --profile`` measures the time of one pass; a fit takes between
120 and 1,240 passes. N = 10⁵ needs a GPU; on two processor cores take ``--contexts 1000``.
"""

from __future__ import annotations

from typing import Any

from ..errors import look_up

COMPARED = ("softmax", "mos", "lms")
"""The models that Ganea et al. 2019 compare."""
DEFAULT: dict[str, Any] = {
    "models": COMPARED, "alphas": (0.1,), "vocabs": (100,), "dims": (2, 5, 10, 20), "contexts": 500, "seeds": 2
}  # fmt: skip
"""A grid that takes a minute or two on two cores."""
_PAPER = {**DEFAULT, "vocabs": (100, 1000, 10_000), "dims": (2, 5, 10, 20, 50, 100), "contexts": 100_000, "seeds": 3}
PRESETS: dict[str, dict[str, Any]] = {
    "paper-fig2": {**_PAPER, "alphas": (0.1,)},  # mode matching
    "paper-fig3": {**_PAPER, "alphas": (0.1,)},  # KL(P* ‖ Q) of the same cells
    "paper-fig6": {**_PAPER, "alphas": (0.01,)},  # mode matching
    "paper-fig7": {**_PAPER, "alphas": (0.01,)},  # KL(P* ‖ Q) of the same cells
    "paper-fig8": {**_PAPER, "alphas": (1.0,)},  # mode matching
}


def preset(name: str | None) -> dict[str, Any]:
    """Return the arguments of a preset, or for ``None`` those of the default grid of ``bottleneck synthetic``.

    Raises:
        ConfigurationError: for an unknown name.
    """
    return DEFAULT if name is None else look_up("preset", name, PRESETS)
