"""Saved spectra with the tolerances of their reports."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from softmax_bottleneck.spectrum import Limits, Spectrum

from .results import SPECTRUM, Results

NEEDS = f"spectra with their reports, of the demo or of 'bottleneck demo --family NAME' (or {SPECTRUM}, rank --json)"


@dataclass(frozen=True)
class Measured:
    """A spectrum and its report."""

    family: str
    model: str
    spectrum: Spectrum
    limits: Limits
    """The tolerances and bounds of the report."""

    def curves(self) -> pd.DataFrame:
        """Return the rows of `Spectrum.curves`, with the ``family``."""
        return self.spectrum.curves(self.model, self.limits).assign(family=self.family)


def measured(results: Results) -> list[Measured]:
    """Return every saved spectrum that has a report beside it, in the order of the reports."""
    spectra = []
    for saved in (*results.of("report"), *results.of("rank")):
        report = saved.content.get("report", saved.content)
        if saved.seed == 0 and saved.key in results.spectra:
            family, _, model = saved.key.rpartition("/")
            tolerances = (report[which]["tolerance"] for which in ("rank", "rank_centered"))
            bounds = (report.get("bound", {}).get(which) for which in ("raw", "centered"))
            spectra.append(Measured(family, model, results.spectra[saved.key], Limits(*tolerances, *bounds)))
    return spectra
