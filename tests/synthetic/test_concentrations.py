"""Distributions drawn from a Dirichlet, sorted (Ganea et al. 2019, figure 5)."""

from __future__ import annotations

import numpy as np
import pytest

from softmax_bottleneck.synthetic.concentrations import concentrations


def test_quantiles_of_sorted_probabilities() -> None:
    result = concentrations(vocabs=(10, 30), contexts=50)
    curves = result["curves"]
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


def test_against_numpys_dirichlet() -> None:
    (curve,) = concentrations(alphas=(1.0,), vocabs=(10,), contexts=4000)["curves"]
    drawn = np.sort(np.random.default_rng(0).dirichlet(np.ones(10), 4000))[:, ::-1]
    median = np.log(np.median(drawn, axis=0))[np.array(curve["ranks"]) - 1]
    assert np.array(curve["log_probs"][1]) == pytest.approx(median, abs=0.08)
