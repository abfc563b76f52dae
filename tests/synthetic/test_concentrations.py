"""Distributions drawn from a Dirichlet, sorted (Ganea et al. 2019, figure 5)."""

from __future__ import annotations

import numpy as np
import pytest

from softmax_bottleneck.synthetic import concentrations


def test_quantiles_of_sorted_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concentrations, "VOCABS", (10, 30))
    monkeypatch.setattr(concentrations, "CONTEXTS", 50)
    curves = concentrations.concentrations()["curves"]
    assert [(curve["vocab"], curve["alpha"]) for curve in curves] == [
        (vocab, alpha) for vocab in (10, 30) for alpha in (0.01, 0.1, 1.0)
    ]
    for curve in curves:
        log_probs = np.array(curve["log_probs"])
        assert log_probs.shape == (3, len(curve["ranks"]))
        assert (np.diff(log_probs, axis=1) <= 0).all()
        assert (np.diff(log_probs, axis=0) >= 0).all()
        assert (curve["ranks"][0], curve["ranks"][-1]) == (1, curve["vocab"])
    tops = [curve["log_probs"][1][0] for curve in curves[:3]]
    assert tops == sorted(tops, reverse=True)  # the smaller α, the surer the first token


def test_against_numpys_dirichlet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ALPHAS": (1.0,), "VOCABS": (10,), "CONTEXTS": 4000}.items():
        monkeypatch.setattr(concentrations, name, value)
    (curve,) = concentrations.concentrations()["curves"]
    drawn = np.sort(np.random.default_rng(0).dirichlet(np.ones(10), 4000))[:, ::-1]
    median = np.log(np.median(drawn, axis=0))[np.array(curve["ranks"]) - 1]
    assert np.array(curve["log_probs"][1]) == pytest.approx(median, abs=0.08)
