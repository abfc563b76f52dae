"""Rows with few tokens more than d, whose last directions look like noise: no changed W is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax

from softmax_bottleneck import identify
from softmax_bottleneck.measure.identification import EDITED, LAYER, NOT, UNKNOWN

Case = tuple[int, int, int, float]
FEW: list[Case] = [(64, 9, 87, 4e-3), (128, 4, 209, 1e-4), (32, 5, 68, 4e-4), (16, 4, 30, 1e-2), (64, 4, 217, 4e-3)]
"""d, tokens beyond it, rows, and the relative change of W."""


def rows_of(case: Case, seed: int, *, changed: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logits of contexts whose directions decay, and the W that is asked for."""
    d, more, T, change = case
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((d + more, d))
    H = rng.standard_normal((T, d)) * 10.0 ** -np.linspace(0, 1, d)
    V = W + changed * change * rng.standard_normal(W.shape)
    return (H @ V.T).astype(np.float32), W.astype(np.float32)


@pytest.mark.parametrize("case", FEW)
def test_a_changed_layer_is_never_the_same(case: Case) -> None:
    verdicts = set()
    for seed in range(12):
        rows, W = rows_of(case, seed, changed=True)
        verdicts.add(identify(rows, W, kind="logits")[0].verdict)
        rows[seed] += 3 * np.random.default_rng(seed).standard_normal(len(W)).astype(np.float32)
        verdicts.add(identify(rows, W, kind="logits")[0].verdict)
    assert verdicts <= {NOT, UNKNOWN}


@pytest.mark.parametrize("case", FEW)
def test_the_layer_itself_is_found(case: Case) -> None:
    for seed in range(3):
        rows, W = rows_of(case, seed, changed=False)
        assert identify(rows, W, kind="logits")[0].verdict == LAYER


STEPS = "look rounded in steps of about 0.002"


@pytest.mark.parametrize(
    ("T", "bias", "verdict", "why"),
    [(60, 0.0, LAYER, STEPS), (300, 0.0, LAYER, STEPS), (60, 1.0, EDITED, "with a bias of rank 1 on most tokens")],
)
def test_rounded_logits_of_more_tokens_still_are_those_of_the_layer(
    T: int, bias: float, verdict: str, why: str
) -> None:
    """Also with a bias that W lacks, where the differences of the rows are fitted, whose noise is larger."""
    rows, W = rows_of((32, 40, T, 0.0), 0, changed=False)
    rows = rows + bias * np.random.default_rng(1).standard_normal(len(W)).astype(np.float32)
    (found,) = identify(log_softmax(rows.astype(np.float16).astype(np.float32), 1), W)
    assert found.verdict == verdict
    assert why in found.why
