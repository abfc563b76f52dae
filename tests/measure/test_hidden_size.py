"""The hidden size of black boxes whose size is known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from softmax_bottleneck import rank
from softmax_bottleneck.errors import ConfigurationError, MatrixError
from softmax_bottleneck.measure import logits_from_top_k


def outputs(T: int, M: int, d: int, *, seed: int = 0, decay: float = 0.9) -> NDArray[np.float64]:
    """Logits whose directions decay as trained models' do."""
    rng = np.random.default_rng(seed)
    return np.asarray((rng.standard_normal((T, d)) * decay ** np.arange(d)) @ rng.standard_normal((d, M)))


@pytest.mark.parametrize("kind", ["logits", "matrix"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 7, 24])
def test_the_largest_gap(d: int, dtype: str, kind: str) -> None:
    report = rank(outputs(200, 90, d).astype(dtype), kind=kind, estimate_hidden_size=True)
    found = report.to_dict()["hidden_size_estimate"]
    assert found["value"] == d
    assert found["gap"] == pytest.approx(found["sigma_d"] / max(found["sigma_next"], found["roundoff"]))
    assert found["margin"] == pytest.approx(found["gap"] / found["next_gap"])
    assert found["margin"] > 10
    assert found["around"][str(d)] == found["gap"]
    assert f"{d:,} (σ_{d} / σ_{d + 1}" in report.details()
    assert not report.next  # it does not advise what was done


def smooth() -> NDArray[np.float32]:
    """Log-probabilities in bfloat16 whose singular values fall evenly."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((rows, 64)))[0] for rows in (500, 300))
    logits = torch.from_numpy(left * (1000 * np.logspace(0, -4, 64)) @ right.T).bfloat16().float()
    return np.asarray(logits.log_softmax(-1).numpy())


def two_groups(seed: int) -> NDArray[np.float64]:
    """Logits of 32 directions, half of them small, of five more contexts: the small ones look like noise."""
    rng = np.random.default_rng(seed)
    return np.asarray((rng.standard_normal((37, 32)) * np.repeat([1, 1e-3], 16)) @ rng.standard_normal((32, 174)))


@pytest.mark.parametrize(
    ("matrix", "options", "why"),
    [
        (outputs(20, 90, 24), {},
         "none of the 20 row-centred singular values is roundoff, so the hidden size is 20 or"),
        (outputs(200, 25, 24), {"eps": "float64"}, "none of the 24 row-centred singular values is roundoff, so the hi"),
        (np.full((50, 10), 2.5), {}, "no row-centred singular value rises above roundoff"),
        (outputs(60, 40, 12), {"method": "sketch", "width": 8},
         r"none of the 8 row-centred singular values is roundoff, .* use a larger width"),
        (smooth(), {"kind": "log-probs"}, "no gap is clear"),
        (two_groups(0), {"kind": "logits"}, "16 of 37 directions stand above what may be noise, and too few are left"),
        (two_groups(3), {"kind": "logits"}, "16 of 37 directions stand above what may be noise, and too few are left"),
    ],
)  # fmt: skip
def test_an_unknown_size_says_why(matrix: Any, options: dict[str, Any], why: str) -> None:
    report = rank(matrix, estimate_hidden_size=True, **{"kind": "matrix", **options})
    found = report.to_dict()["hidden_size_estimate"]
    assert found["value"] is None
    assert re.match(why, found["why"])
    assert f"hidden size  unknown: {found['why']}" in report.details()


class Interface:
    """Shows the k largest log-probabilities after a bias, rounded, and counts its queries."""

    def __init__(self, logits: NDArray[np.float64], k: int, digits: int = 12) -> None:
        self.logits, self.k, self.digits, self.asked = logits, k, digits, 0

    def __call__(self, context: int, bias: Mapping[int, float]) -> dict[int, float]:
        self.asked += 1
        biased = self.logits[context].copy()
        for token, value in bias.items():
            biased[token] += value
        log_probs = biased - np.log(np.exp(biased - biased.max()).sum()) - biased.max()
        return {int(token): round(float(log_probs[token]), self.digits) for token in np.argsort(-log_probs)[: self.k]}


def test_logits_through_a_top_k_interface() -> None:
    logits = outputs(60, 40, 6)
    interface = Interface(logits, k=5)
    found = logits_from_top_k(interface, range(60), tokens=range(30), k=5, bias=60.0)
    differences = found - logits[:, :30]
    np.testing.assert_allclose(differences - differences.mean(1, keepdims=True), 0, atol=1e-9)
    assert interface.asked <= 60 * (1 + 8)
    estimate: Any = rank(found, kind="matrix", eps=1e-11, estimate_hidden_size=True).to_dict()["hidden_size_estimate"]
    assert estimate["value"] == 6
    with pytest.raises(MatrixError, match=r"the answer for context 0 lacks token .*: use a larger bias than 0\.01"):
        logits_from_top_k(interface, range(5), tokens=range(30), k=5, bias=0.01)
    with pytest.raises(ConfigurationError, match="k must be at least 2 and tokens not empty"):
        logits_from_top_k(interface, range(5), tokens=range(30), k=1)


@pytest.mark.parametrize("before", ["bfloat16", "float32"])
def test_the_direction_of_the_words_frequencies_is_no_gap(before: str) -> None:
    """Logits of d = 32 with a bias far larger than they are, as that of a language model's words."""
    rng = np.random.default_rng(0)
    logits = 0.1 * rng.standard_normal((500, 32)) @ rng.standard_normal((32, 300)) - 3 * np.log(np.arange(1, 301))
    rounded = torch.from_numpy(logits).to(getattr(torch, before)).float()
    found = rank(rounded.log_softmax(-1), estimate_hidden_size=True).to_dict()["hidden_size_estimate"]
    assert found["value"] == 33  # the bias adds one


def test_both_ways_to_be_one_off_are_said() -> None:
    """A norm without offset takes one direction, and the report names the layer's own size beside the estimate."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.nn.functional.layer_norm(torch.randn(300, 12, generator=generator, dtype=torch.float64), (12,))
    layer = torch.nn.Linear(12, 200, bias=False).double()
    report = rank(layer, hidden=hidden, estimate_hidden_size=True)
    assert report.to_dict()["hidden_size_estimate"]["value"] == 11
    assert "one too few; the output layer's own size is 12" in dict(report.rows())["hidden size"]
