"""−∞ is refused by default; dropping its columns is explicit, and recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from softmax_bottleneck import kld, rank
from softmax_bottleneck.errors import ConfigurationError, MatrixError
from softmax_bottleneck.language_models import source as base
from softmax_bottleneck.measure.dumping import dump
from softmax_bottleneck.sources import open_source

Matrix = NDArray[np.float64]
MASKED = [3, 7]


@pytest.fixture
def logits() -> Matrix:
    """Rank 4, with two tokens that are never predicted and one that is masked once."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((40, 4)) @ rng.standard_normal((4, 12))
    matrix[:, MASKED] = -np.inf
    matrix[25, 9] = -np.inf
    return matrix


def test_refused_by_default(logits: Matrix) -> None:
    with pytest.raises(MatrixError, match=r"at row 0, column 3: .*; rank\(\) with inf='drop-columns' leaves"):
        rank(logits, kind="logits")
    with pytest.raises(ConfigurationError, match="unknown inf 'ignore'; it is one of refuse, drop-columns"):
        rank(logits, kind="logits", inf="ignore")
    # Other measurements do not advise an option of rank.
    with pytest.raises(MatrixError, match=r"1 of 40 contexts mask token 9 .*; leave out the columns of such tokens"):
        kld(logits, kind="logits")


@pytest.mark.parametrize("method", ["dense", "tsqr", "sketch"])
def test_dropped_columns(logits: Matrix, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BLOCK_BYTES", 7 * 12 * 8)
    np.save(tmp_path / "m.npy", logits)
    report = rank(tmp_path / "m.npy", kind="logits", inf="drop-columns", method=method)
    normalized = np.delete(logits, [*MASKED, 9], axis=1) - np.log(np.exp(logits).sum(1, keepdims=True))
    assert report.spectrum.shape == (40, 9)
    np.testing.assert_allclose(report.spectrum.values, np.linalg.svd(normalized, compute_uv=False), atol=1e-12)
    assert (report.rank.value, report.rank_centered.value) == (5, 4)
    assert report.to_dict()["source"]["dropped_columns"] == 3
    assert "40 contexts × 9 tokens, 3 columns with -inf dropped" in report.details()


def test_the_first_contexts_and_a_store_pass_them_on(logits: Matrix, tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", logits)
    first = rank(tmp_path / "m.npy", kind="logits", inf="drop-columns", contexts=20)
    assert first.spectrum.shape == (20, 10)  # the token that is masked once is so in row 25
    whole = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(
        first.spectrum.values, np.linalg.svd(np.delete(whole[:20], MASKED, axis=1), compute_uv=False), atol=1e-12
    )
    store = dump(open_source(tmp_path / "m.npy", kind="logits"), tmp_path / "s.zarr")
    with pytest.raises(MatrixError, match="holds -inf at row 0, column 3"):
        rank(store)
    assert rank(store, inf="drop-columns").spectrum.shape == (40, 9)


def test_a_doubt_about_the_whole_matrix_holds_for_its_finite_columns() -> None:
    """A token masked by −10⁹ in most rows hides all other directions."""
    rng = np.random.default_rng(0)
    matrix = (rng.standard_normal((600, 10)) @ rng.standard_normal((10, 300))).astype(np.float32)
    matrix[100:, 7] -= 1e9
    matrix[:, 3] = -np.inf
    report = rank(matrix, kind="logits", inf="drop-columns")
    assert not report.rank.determinate
    assert "in column 7: the tolerance hides all others" in report.rank.doubt


def test_nothing_to_drop(runs: dict[str, Path]) -> None:
    """A log-linear head keeps its factors."""
    plain, dropped = rank(runs["softmax"]), rank(runs["softmax"], inf="drop-columns")
    assert dropped.spectrum.method == plain.spectrum.method == "factored"
    np.testing.assert_array_equal(dropped.spectrum.values, plain.spectrum.values)
    assert (dropped.bound, dropped.source["dropped_columns"]) == (plain.bound, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_other_numbers_are_refused_still(logits: Matrix, bad: float) -> None:
    logits[11, 2] = bad
    with pytest.raises(MatrixError, match=rf"holds {bad} at row 11, column 2: .*; fix what made it"):
        rank(logits, kind="logits", inf="drop-columns")


def test_nothing_left() -> None:
    with pytest.raises(MatrixError, match="every column of the matrix holds -inf, so nothing is left"):
        rank(np.where(np.eye(2), -np.inf, 0.0), kind="logits", inf="drop-columns")


def test_log_probabilities_of_some_tokens_alone_are_refused() -> None:
    log_probs = np.log(np.random.default_rng(0).dirichlet(np.ones(8), 5))
    log_probs[np.arange(5), log_probs.argmax(1)] = -np.inf
    with pytest.raises(MatrixError, match=r"row 0 of array holds -inf for 1 of its .* sum to 0\.[3-9]\d*: give"):
        rank(log_probs)
