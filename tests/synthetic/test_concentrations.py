"""Distributions drawn from a Dirichlet, sorted (Ganea et al. 2019, figure 5)."""

from __future__ import annotations

import numpy as np
import pytest

from softmax_bottleneck.synthetic import concentrations


def test_quantiles_of_sorted_probabilities_are_those_of_numpys_dirichlet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ALPHAS": (0.3, 1.0), "VOCABS": (5, 10), "CONTEXTS": 4000}.items():
        monkeypatch.setattr(concentrations, name, value)
    curves = concentrations.concentrations()["curves"]
    assert [(curve["vocab"], curve["alpha"]) for curve in curves] == [(5, 0.3), (5, 1.0), (10, 0.3), (10, 1.0)]
    for curve in curves:
        assert (curve["ranks"][0], curve["ranks"][-1]) == (1, curve["vocab"])
        drawn = np.random.default_rng(0).dirichlet(np.full(curve["vocab"], curve["alpha"]), 4000)
        quantiles = np.quantile(np.sort(drawn)[:, ::-1], concentrations.QUANTILES, axis=0)
        found = np.exp(curve["log_probs"])
        assert found == pytest.approx(quantiles[:, np.array(curve["ranks"]) - 1], abs=0.02)
