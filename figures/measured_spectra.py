"""Saved spectra with the tolerance of their reports, which the figures beyond the papers draw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softmax_bottleneck.spectrum import Spectrum

from .results import SPECTRUM, Results

NEEDS = f"spectra with their reports, of the demo or of 'bottleneck demo --family NAME' (or {SPECTRUM}, rank --json)"
POINTS = 400
"""Of a curve, at equal ratios: more are not told apart in print."""


@dataclass(frozen=True)
class Measured:
    """A spectrum, and what its report says of it."""

    family: str
    model: str
    spectrum: Spectrum
    tolerance: float
    """Below which a singular value is roundoff, as σ."""
    centered_tolerance: float

    def parts(self) -> Iterator[tuple[str, NDArray[np.float64], float, float]]:
        """Yield ``"raw"`` and ``"row-centred"``: descending values, the method's error, the tolerance."""
        spectrum = self.spectrum
        yield "raw", spectrum.values, spectrum.error, self.tolerance
        yield "row-centred", spectrum.centered, spectrum.centered_error, self.centered_tolerance


def measured(results: Results) -> list[Measured]:
    """Return every saved spectrum that has a report beside it, in the order of the reports."""
    found = []
    for saved in (*results.of("report"), *results.of("rank")):
        report = saved.content.get("report", saved.content)
        if saved.seed == 0 and saved.key in results.spectra:
            family, _, model = saved.key.rpartition("/")
            limits = (report[which]["tolerance"] for which in ("rank", "rank_centered"))
            found.append(Measured(family, model, results.spectra[saved.key], *limits))
    return found


def spaced(size: int) -> NDArray[np.int64]:
    """Return at most `POINTS` places in 0 … size − 1, at equal ratios, with both ends."""
    return np.unique(np.geomspace(1, size, POINTS).round().astype(np.int64)) - 1
