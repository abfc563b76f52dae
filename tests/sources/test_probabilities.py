"""Probabilities in place of their logarithms, against the distributions that they were rounded from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

import softmax_bottleneck as sb
from softmax_bottleneck.errors import MatrixError, SourceError

RANDOM = np.random.default_rng(0)
D = 6
Z = RANDOM.standard_normal((100, D)) @ RANDOM.standard_normal((D, 120))
LOG_P = Z - np.logaddexp.reduce(Z, 1)[:, None]
P = np.exp(LOG_P)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_whole_type_is_whole(dtype: str, tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", P.astype(dtype))
    report = sb.rank(tmp_path / "p.npy", kind="probabilities")
    assert (report.rank.value, report.rank_centered.value, report.rank.determinate) == (D + 1, D, True)
    assert report.eps.dtype == dtype
    kld = sb.kld(list(np.array_split(P.astype(dtype), 3)), kind="probabilities").kld
    assert kld == pytest.approx(sb.kld(LOG_P).kld, rel=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_few_likely_tokens_are_whole(dtype: str) -> None:
    """A narrow type holds only decimals there: of float32 each number above 1e-5 is one of twelve places."""
    few = softmax(Z[:, :6] / 4, 1)
    found = sb.compare(np.log(few), sb.open(few.astype(dtype), kind="probabilities")).statistics["kl"]
    assert found.value == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("decimals", [4, 6, 8])
def test_decimals_are_intervals(decimals: int, tmp_path: Path) -> None:
    """What is proved never exceeds the rank, and the interval of KL holds that of the unrounded distributions."""
    np.savetxt(tmp_path / "p.csv", P, delimiter=",", fmt=f"%.{decimals}f")
    noisy = LOG_P + 0.1 * RANDOM.standard_normal(P.shape)
    Q = np.exp(noisy - np.logaddexp.reduce(noisy, 1)[:, None])
    np.save(tmp_path / "q.npy", Q)
    report = sb.rank(tmp_path / "p.csv", kind="probabilities")
    assert report.rank.at_least
    assert (D - 1 if decimals > 4 else 1) <= report.rank.low <= D + 1
    kl = sb.compare(tmp_path / "p.csv", tmp_path / "q.npy", kind="probabilities").statistics["kl"]
    exact = float((P * (LOG_P - np.log(Q))).sum(1).mean())
    assert kl.roundoff is not None
    assert abs(kl.value - exact) <= kl.roundoff
    with pytest.raises(SourceError, match="holds a part of each distribution"):
        sb.compare(tmp_path / "q.npy", tmp_path / "p.csv", kind="probabilities")


@pytest.mark.parametrize("digits", [3, 4, 7, 9])
def test_significant_digits_are_intervals(digits: int, tmp_path: Path) -> None:
    """They are relative errors: of the least probabilities no more decimals are known than digits."""
    np.savetxt(tmp_path / "p.csv", P, delimiter=",", fmt=f"%.{digits}g")
    rounded = sb.open(tmp_path / "p.csv", kind="probabilities")
    (part,) = rounded.parts()
    assert (np.abs(part.log_probs - LOG_P) <= part.error).all()
    report = sb.rank(rounded)
    assert report.rank.at_least
    assert report.rank.low <= D + 1
    assert "if the logits were never rounded" not in report.verdict
    noisy = LOG_P + 0.1 * RANDOM.standard_normal(P.shape)
    Q = noisy - np.logaddexp.reduce(noisy, 1)[:, None]
    kl, exact = sb.compare(rounded, Q).statistics["kl"], float((P * (LOG_P - Q)).sum(1).mean())
    assert abs(kl.value - exact) <= kl.roundoff < 0.2 * exact


@pytest.mark.parametrize("seed", [18, 35, 44])
def test_digits_whose_least_number_ends_in_a_zero(seed: int) -> None:
    """5.0e-10 needs ten decimals, of which all larger numbers would show more digits than two."""
    rng = np.random.default_rng(seed)
    p = softmax(rng.standard_normal((76, 5)) @ rng.standard_normal((5, 90)), 1)
    rounded = np.array([float(f"{each:.1e}") for each in p.ravel()]).reshape(p.shape)
    assert f"{rounded.min():.1e}"[1:3] == ".0"
    (part,) = sb.open(rounded, kind="probabilities").parts()
    assert part.seen.all()
    assert (np.abs(part.log_probs - np.log(p)) <= part.error).all()
    assert "if the logits were never rounded" not in sb.rank(rounded, kind="probabilities").verdict


def test_sums_that_rounding_moves_far_from_one() -> None:
    """Two decimals of 40 tokens move a sum by 0.2, seven digits of likely tokens by more than eight decimals would."""
    flat, Q = softmax(Z[:, :40] / 4, 1), np.full((100, 40), 1 / 40)
    few = softmax(Z[:, :12] / 10, 1)
    scale = 10.0 ** (6 - np.floor(np.log10(few)))
    for exact, rounded in ((flat, flat.round(2)), (few, np.round(few * scale) / scale)):
        assert np.abs(rounded.sum(1) - 1).max() > (0.02 if exact is flat else 6e-8)
        model = Q[:, : exact.shape[1]] / Q[:, : exact.shape[1]].sum(1, keepdims=True)
        found = sb.compare(sb.open(rounded, kind="probabilities"), np.log(model)).statistics["kl"]
        assert abs(found.value - (exact * np.log(exact / model)).sum(1).mean()) <= found.roundoff
        assert sb.rank(rounded, kind="probabilities").rank.at_least


def test_columns_that_are_named_by_ids_stand_in_that_order(tmp_path: Path) -> None:
    """Decimals make other intervals of the same table, which are of the same tokens."""
    few = np.round(softmax(Z[:, :5], 1), 4)
    order = [3, 0, 4, 1, 2]
    pd.DataFrame(few[:, order], columns=[str(token) for token in order]).to_parquet(tmp_path / "p.parquet")
    one, other = (sb.compare(sb.open(each, kind="probabilities"), np.log(softmax(Z[:, 5:10], 1))).statistics["kl"]
                  for each in (few, tmp_path / "p.parquet"))  # fmt: skip
    assert (one.value, one.roundoff) == (other.value, other.roundoff)


def test_masked_tokens_can_be_dropped() -> None:
    masked = np.insert(P, [3, 50], 0.0, axis=1)
    report = sb.rank(masked, kind="probabilities", inf="drop-columns")
    assert (report.rank.value, report.rank_centered.value) == (D + 1, D)
    with pytest.raises(MatrixError, match=r"holds -inf at row 0, column 3: .* inf='drop-columns' leaves such tokens"):
        sb.rank(masked, kind="probabilities")


def test_half_floats_below_their_least_normal_number(tmp_path: Path) -> None:
    """Subnormal numbers have fewer digits, and zero is any number below them."""
    sharp = np.exp(4 * Z - np.logaddexp.reduce(4 * Z, 1)[:, None])
    half = sharp.astype(np.float16)
    assert (half == 0).any()
    np.save(tmp_path / "p.npy", half)
    report = sb.rank(tmp_path / "p.npy", kind="probabilities")
    assert report.rank.at_least
    assert 1 <= report.rank.low <= D + 1


@pytest.mark.parametrize(
    ("matrix", "kind", "why"),
    [
        (P, "log-probs", "use kind='probabilities'"),
        (P, "logits", "use kind='probabilities'"),
        (LOG_P, "probabilities", "are not probabilities: these are from 0 to 1"),
        (2 * P, "probabilities", "those of a row sum to 1"),
        (100 * P / P.max(), "probabilities", "are not probabilities: these are from 0 to 1"),
        (np.where(P.min() < P, LOG_P, -np.inf), "probabilities", "are not probabilities: these are from 0 to 1"),
        (np.where(P > 2e-3, P, 0.0) / np.where(P > 2e-3, P, 0.0).sum(1)[:, None], "probabilities", "truncations leave"),
    ],
)
def test_mistakes(matrix: np.ndarray, kind: str, why: str) -> None:
    with pytest.raises(MatrixError, match=why):
        sb.rank(matrix, kind=kind)
