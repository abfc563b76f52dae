"""Floors under probabilities, numbers added to them, and grids that few numbers show: doubted, and never "exact"."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import Tensor

from pipelines import assert_open, low_rank
from softmax_bottleneck import kld, pairwise_kld, rank
from softmax_bottleneck.measure.dumping import dump

Matrix = NDArray[np.float64]


def probabilities(rows: int = 300, columns: int = 1000, *, scale: float = 0.75, seed: int = 0) -> Tensor:
    """Float32 probabilities of a softmax of rank 17."""
    return torch.softmax(torch.from_numpy(scale * low_rank(rows, columns, 16, seed=seed)).float(), 1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("floor", "kept"), [(1e-12, False), (3e-12, False), (1e-8, True), (1e-10, True)])
def test_a_floor_under_a_few_probabilities(floor: float, kept: bool, seed: int) -> None:
    p = probabilities(seed=seed)
    log_p = ((p + floor) if kept else p.clamp_min(floor)).log()
    report = rank(log_p)
    for each in (report.rank, report.rank_centered):
        assert not each.determinate
        assert each.low <= 16 <= 17 <= each.high
    assert "floor" in report.rank.doubt
    assert "floor" in kld(log_p).doubt


@pytest.mark.parametrize("added", [1e-8, 1e-10, 1e-12])
def test_a_floor_at_which_many_probabilities_become_equal(added: float) -> None:
    """A rounding does not make them equal, though the directions of the floor look like the noise of a coarse one."""
    p = torch.softmax(torch.from_numpy(3 * low_rank(400, 200, 10)), 1)
    doubt = rank((p + added).log(), kind="logits").rank.doubt
    assert f"crowd at the lowest number, {math.log(added):.6g}" in doubt


@pytest.mark.parametrize(("added", "dtype"), [(1e-8, torch.float32), (1e-16, torch.float64)])
def test_a_number_added_to_all_probabilities(added: float, dtype: torch.dtype) -> None:
    """No probability is near the number: only the sums of the rows show it."""
    p = torch.softmax(torch.from_numpy(0.1 * low_rank(300, 1000, 16)).to(dtype), 1)
    report = rank((p + added).log())
    assert not report.rank.determinate
    assert report.rank.low <= 17 <= report.rank.high
    assert f"as after log(p + {added:g})" in report.rank.doubt


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.1, 0.75, 2.0])
def test_no_floor_is_seen_without_one(scale: float, seed: int) -> None:
    logits = torch.from_numpy(scale * low_rank(300, 1000, 16, seed=seed)).float()
    plain = torch.exp(logits) / torch.cumsum(torch.exp(logits), 1)[:, -1:]  # sums that are off by 10^-6
    for log_p in (torch.log_softmax(logits, 1), torch.softmax(logits, 1).log(), plain.log()):
        report = rank(log_p)
        assert (report.rank.value, report.rank.determinate, report.rank.doubt) == (17, True, "")
        assert kld(log_p).doubt == ""


def test_equal_rows_and_columns_are_no_floor() -> None:
    logits = (0.75 * low_rank(300, 400, 16)).astype(np.float32)
    logits[:, -5:] = logits[:, logits.min(0).argmin(), None]  # unused tokens share one embedding
    logits[-5:] = logits[logits.min(1).argmin()]
    report = rank(torch.log_softmax(torch.from_numpy(logits), 1))
    assert (report.rank.value, report.rank.determinate) == (17, True)


def test_the_divergence_of_a_truncated_matrix_is_doubted(tmp_path: Path) -> None:
    exact = log_softmax(0.75 * low_rank(600, 800, 16), 1)
    kept = exact >= np.sort(exact, 1)[:, -20, None]
    rest = np.log((1 - np.where(kept, np.exp(exact), 0).sum(1, keepdims=True)) / 780)
    truncated = np.where(kept, exact, rest).astype(np.float32)
    measured = kld(truncated)
    assert abs(measured.kld - kld(exact).kld) > 1
    assert "a truncation (top-k, top-p) or a floor replaced them" in measured.doubt == pairwise_kld(truncated).doubt
    assert measured.to_dict()["doubt"] in str(measured)
    dump(truncated, tmp_path / "a.zarr")
    for store in (tmp_path / "a.zarr", (tmp_path / "a.zarr").as_uri()):
        assert kld(store).doubt == measured.doubt
    assert not kld(exact).to_dict()["doubt"]


@pytest.mark.parametrize("how", ["printed", "temperature"])
def test_a_divergence_is_that_of_the_numbers_and_names_a_rounding_that_they_show(how: str) -> None:
    logits = 0.75 * low_rank(50, 100, 16)
    made = logits.round(4) if how == "printed" else logits.astype(np.float32).astype(np.float64) / 0.7
    measured = kld(log_softmax(made, 1))
    P = log_softmax(made.astype(np.longdouble), 1)
    truth = (np.exp(P) * (P - P.mean(0))).sum(1).mean()
    assert abs(measured.kld - truth) < measured.roundoff < 1e-12
    assert "the numbers look rounded in steps of about" in str(measured)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_numbers_of_any_matrix_hide_their_rank(dtype: torch.dtype) -> None:
    """The output embeddings of a checkpoint: their exact rank is 64."""
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(64, 64, generator=generator))[0]
    weight = torch.randn(2000, 64, generator=generator) * torch.exp(-torch.arange(64) / 12) @ turn
    narrow = weight.to(dtype)
    assert np.linalg.matrix_rank(narrow.double().numpy()) == 64
    for each in (narrow, narrow.float()):
        report = rank(each, kind="matrix")
        assert report.rank.high == 64
        assert not report.rank.determinate


@pytest.mark.parametrize(("rows", "columns", "kind"), [(120, 100, "log-probs"), (1200, 800, "matrix")])
def test_eight_bit_logits_with_a_bias(rows: int, columns: int, kind: str) -> None:
    logits = low_rank(rows, columns, 20)
    step = np.abs(logits).max() / 127
    quantized = np.rint(logits / step) * step + np.random.default_rng(1).standard_normal(columns)
    for made in (quantized, quantized.astype(np.float32)):
        assert_open(rank(log_softmax(made, 1), kind=kind), 22, 21)


@pytest.mark.parametrize("columns", [120, 200])
def test_log_probabilities_given_as_any_matrix_show_their_rounding(columns: int) -> None:
    """Logits of bfloat16, divided by a temperature and normalized."""
    rng = np.random.default_rng(0)
    logits = 0.3 / 40**0.5 * low_rank(1200, columns, 40) + rng.standard_normal(columns)
    log_p = torch.log_softmax(torch.from_numpy(logits).bfloat16().float() / 1.3, 1)
    report = rank(log_p, kind="matrix")
    assert report.rank.low <= 42 <= report.rank.high
    assert report.rank_centered.low <= 41 <= report.rank_centered.high
    assert not report.rank_centered.determinate


def test_scattered_minus_infinity_is_no_rounding() -> None:
    logits = 0.75 * low_rank(400, 500, 10)
    rng = np.random.default_rng(0)
    for row in logits:
        row[rng.choice(60, 20, replace=False)] = -np.inf
    report = rank(logits, kind="logits", inf="drop-columns")
    assert report.eps.coarse is None
    assert report.rank.low <= 11 <= report.rank.high < 50


def test_log_probabilities_of_eight_bits_are_measured() -> None:
    """A float32 copy holds a few whole numbers in each row, whose probabilities do not sum to one."""
    narrow = torch.log_softmax(torch.from_numpy(0.3 * low_rank(60, 2000, 10)), 1).to(torch.float8_e5m2)
    assert_open(rank(narrow.float()), 11, 10)
