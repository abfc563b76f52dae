"""Normalized singular-value CDFs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes

from ..spectrum import Spectrum

DASHES: tuple[tuple[float, ...], ...] = ((1, 0), (4, 1.5), (1, 1), (4, 1, 1, 1))
"""Curves that lie on each other stay apart: those of Softmax and MoC do."""


def draw_spectrum_cdf(ax: Axes, spectra: Mapping[str, Spectrum], *, left: float = 1e-10) -> None:
    """Draw one curve a model: the percentage of singular values below a share of the largest.

    Args:
        ax: drawn into.
        spectra: by label.
        left: the smallest share shown (the paper's axis begins at 1e-10).
    """
    for (label, spectrum), dashes in zip(spectra.items(), cycle(DASHES), strict=False):
        ax.step(*spectrum.cdf(), where="post", label=label, linestyle=(0, dashes))
    ax.set_xscale("log")
    ax.set_xlim(left, 1.5)
    ax.set_ylim(0, 101)
    ax.set_yticks(np.arange(0, 101, 20))
    ax.yaxis.set_major_formatter("{x:.0f} %")
    ax.set_xlabel("normalized singular value σ / σ₁")
    ax.set_ylabel("singular values below")
    ax.legend(loc="best")
