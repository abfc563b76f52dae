"""The measurement as a whole: tolerances of the two spectra against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softmax_bottleneck import rank
from softmax_bottleneck.measure import computing as measure
from softmax_bottleneck.spectrum import tolerance


def _low_rank_log_probs(scale: float, dtype: type[np.floating], *, d: int = 5) -> NDArray[np.floating]:
    rng = np.random.default_rng(0)
    logits = scale * rng.standard_normal((400, d)) @ rng.standard_normal((d, 60))
    return (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(dtype)


@pytest.mark.parametrize("method", ["dense", "gram", "tsqr"])
@pytest.mark.parametrize("scale", [0.01, 0.1, 1.0])
def test_centred_rank_does_not_count_the_roundoff_of_the_raw_entries(method: str, scale: float) -> None:
    """Nearly uniform rows: what centring leaves is small, the rounding of log P ≈ −log M is not."""
    report = rank(_low_rank_log_probs(scale, np.float32), method=method)
    assert report.rank.value == 6
    assert report.rank_centered.value == 5


def test_centred_tolerance_is_its_own_unless_the_raw_entries_are_coarser() -> None:
    flat, steep = (rank(_low_rank_log_probs(scale, np.float32), method="dense") for scale in (0.01, 3.0))
    press = [tolerance(r.rank_centered.sigma_1, (400, 60), 2.0**-23, "press") for r in (flat, steep)]
    norm = np.linalg.norm(_low_rank_log_probs(0.01, np.float32).astype(np.float64))
    assert flat.rank_centered.tolerance == pytest.approx(0.5 * 2.0**-23 * norm, rel=1e-6)
    assert flat.rank_centered.tolerance > press[0]
    assert steep.rank_centered.tolerance == pytest.approx(press[1], rel=1e-12)


def test_computations_that_differ_are_saved_apart(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same model, same corpus, same shape: the split, the precision and the method must still tell them apart."""
    seen: list[dict[str, Any]] = []

    class Recorder(measure.SavedState):
        def __init__(self, folder: Path, about: dict[str, Any], **_: Any) -> None:
            seen.append(about)
            super().__init__(tmp_path, about)

    monkeypatch.setattr(measure, "LONG", 0)
    monkeypatch.setattr(measure, "SavedState", Recorder)
    options: list[dict[str, Any]] = [{}, {"split": "valid"}, {"dtype": "float64"}, {"method": "tsqr"}, {"contexts": 41}]
    for option in options:
        rank(runs["mos"], **{"contexts": 40, "method": "gram", "eps": 1e-3, **option})
    rank(runs["mos"], contexts=40, method="gram", eps=1e-3)
    assert seen[-1] == seen[0]
    assert all(one != other for index, one in enumerate(seen[:-1]) for other in seen[:index])
