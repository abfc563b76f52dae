"""The pipelines people have: logits of known rank, rounded by a model, normalized and stored by whoever comes after.

No determinate rank may be wrong, and every interval holds the true rank.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from pipelines import assert_true
from softmax_bottleneck import RankReport, pairwise_kld, rank
from softmax_bottleneck.measure.dumping import dump
from softmax_bottleneck.sources import open_source

TYPES = {
    "float8": torch.float8_e4m3fn,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}


def logits(rows: int, columns: int, d: int, *, offset: float = 0.0, seed: int = 0) -> Tensor:
    """Logits of rank d, and of row-centred rank d, whose log-probabilities have rank d + 1."""
    random = torch.Generator().manual_seed(seed)
    left = torch.randn(rows, d, dtype=torch.float64, generator=random)
    return left @ torch.randn(d, columns, dtype=torch.float64, generator=random) + offset


def assert_ranks(report: RankReport, d: int) -> None:
    assert_true(report.rank, d + 1)
    assert_true(report.rank_centered, d)


@pytest.mark.parametrize("scale", [1.0, 1 / 0.7], ids=["as they are", "temperature 0.7"])
@pytest.mark.parametrize("offset", [0.0, -150.0, 3000.0, 1e4])
@pytest.mark.parametrize("after", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("before", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize(("rows", "columns", "d"), [(400, 300, 10), (300, 400, 64)])
def test_logits_rounded_before_log_softmax(
    rows: int, columns: int, d: int, before: str, after: torch.dtype, offset: float, scale: float
) -> None:
    rounded = logits(rows, columns, d, offset=offset).to(TYPES[before]).to(after)
    assert_ranks(rank((rounded * scale).log_softmax(-1)), d)
    assert_ranks(rank(rounded * scale, kind="logits"), d)


@pytest.mark.parametrize("after", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_logits_rounded_to_eight_bits(after: torch.dtype) -> None:
    rounded = logits(400, 300, 10).to(torch.float8_e4m3fn)
    assert_ranks(rank(rounded.to(after).log_softmax(-1)), 10)
    assert_ranks(rank(rounded.to(after), kind="logits"), 10)
    report = rank(rounded, kind="logits")
    assert report.eps.dtype == "float8_e4m3fn"
    assert_ranks(report, 10)


def test_the_fields_commonest_pipeline() -> None:
    """``logits.float().log_softmax(-1)`` of a bfloat16 model: the rounding is seen, named, and judged by."""
    report = rank(logits(1000, 1000, 64).bfloat16().float().log_softmax(-1))
    assert report.eps.coarse is not None
    assert "rounded to bfloat16" in report.details()
    assert "before normalization" in report.details()
    # 64 directions stand above the noise; nothing can exclude more below it.
    found = report.rank_centered
    assert (found.value, found.low, found.high, found.determinate) == (64, 64, 999, False)
    # What the tolerance is made of: the norm of the rounding errors themselves, measured.
    exact = logits(1000, 1000, 64)
    noise = float(torch.linalg.matrix_norm(exact.bfloat16().double() - exact, 2))
    assert 0.5 < report.eps.noise_norm((1000, 1000)) / noise < 2.0


def test_eps_overrides_what_is_seen() -> None:
    matrix = logits(400, 300, 10).bfloat16().float().log_softmax(-1)
    report = rank(matrix, eps="float32")
    assert (report.eps.coarse, report.eps.assumed) == (None, False)
    assert report.rank.value == 300
    assert "the ranks are not judged by it, because eps was given" in report.details()
    assert report.to_dict()["noise_seen"]["is_coarse"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8"])
@pytest.mark.parametrize("offset", [0.0, -150.0])
def test_a_tensors_own_type_decides(dtype: str, offset: float, tmp_path: Any) -> None:
    """Rounded to bfloat16, logits beyond 128 are whole numbers: those say nothing only where they are small."""
    if dtype == "float8" and offset:
        return  # nothing but two numbers would be left
    narrow = logits(400, 300, 10, offset=offset).to(TYPES[dtype])
    report = rank(narrow, kind="logits")
    assert report.eps.value == torch.finfo(TYPES[dtype]).eps
    assert "energy sits in" not in report.details()
    assert_ranks(report, 10)
    save_file({"logits": narrow}, tmp_path / "logits.safetensors")
    stored = rank(tmp_path / "logits.safetensors", kind="logits")
    assert stored.eps == report.eps
    assert_ranks(stored, 10)
    blocks = rank((block for block in narrow.split(128)), kind="logits")
    assert blocks.eps == report.eps
    whole = narrow.view(torch.uint8)  # old versions of torch cannot index float8
    function = rank(lambda ids: whole[ids].view(narrow.dtype), data=[np.arange(400)[None]], vocab_size=300)
    assert function.eps.value == report.eps.value
    assert_ranks(function, 10)
    widened = rank(narrow.float(), kind="logits")
    assert widened.eps.value >= min(report.eps.value, 2.0**-7)
    assert_ranks(widened, 10)


@pytest.mark.parametrize("kind", ["log-probs", "logits"])
def test_full_precision_in_a_few_places_hides_no_rounding(kind: str) -> None:
    exact = logits(400, 300, 10)
    rounded = exact.bfloat16().float()
    half = torch.where(torch.arange(400)[:, None] % 2 == 0, rounded, exact.float())
    one_number = rounded.clone()
    one_number[7, 5] += 1e-4
    a_batch = exact.float()
    a_batch[100:140] = rounded[100:140]
    for mixed in (half, one_number, a_batch):
        given = mixed.log_softmax(-1) if kind == "log-probs" else mixed
        report = rank(given, kind=kind)
        assert report.eps.coarse is not None or report.eps.dtype == "bfloat16"
        assert_ranks(report, 10)


@pytest.mark.parametrize("cap", [30.0, 5.0])
def test_a_soft_cap_after_rounding(cap: float) -> None:
    """tanh leaves no low rank, and no lattice; equal logits stay equal, and are counted."""
    capped = cap * torch.tanh(logits(400, 300, 10).bfloat16().float() / cap)
    report = rank(capped.log_softmax(-1))
    assert report.eps.coarse is not None
    assert not report.rank.determinate


def test_a_mixture_of_rounded_softmaxes_has_full_rank() -> None:
    parts = [logits(300, 200, 4, seed=seed).bfloat16().float().log_softmax(-1) for seed in range(3)]
    report = rank(torch.stack(parts).logsumexp(0) - math.log(3))
    assert_true(report.rank_centered, 199)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [30, 300, 2000])
def test_what_was_not_rounded_shows_no_rounding(dtype: torch.dtype, columns: int) -> None:
    report = rank(logits(500, columns, 8).to(dtype).log_softmax(-1))
    assert report.eps.coarse is None
    assert (report.rank.value, report.rank.determinate) == (9, True)


def test_so_few_numbers_show_nothing() -> None:
    """Full rank of a few numbers may be rounding, and nothing would show it."""
    report = rank(logits(40, 9, 8).float().log_softmax(-1))
    assert (report.rank.value, report.rank.low < 9, report.rank.determinate) == (9, True, False)
    assert "do not show whether the numbers were rounded" in report.details()
    assert rank(logits(40, 9, 8).float().log_softmax(-1), eps="float32").rank.determinate


def test_tokens_that_are_copies_of_each_other_show_no_rounding() -> None:
    """A padded vocabulary: its unused rows of W are all the same."""
    padded = torch.cat([logits(200, 100, 6), torch.zeros(200, 40, dtype=torch.float64)], 1)
    report = rank(padded.float().log_softmax(-1))
    assert report.eps.coarse is None
    assert (report.rank_centered.value, report.rank_centered.determinate) == (6, True)


def test_clipped_probabilities_are_not_determinate() -> None:
    """log(p + 1e-8) and its like make full rank out of any."""
    p = logits(400, 300, 10).softmax(-1).clamp_min(1e-4)
    report = rank((p / p.sum(1, keepdim=True)).log())
    assert report.eps.coarse is not None
    assert "a floor replaced them" in report.details()
    assert not report.rank.determinate


def test_noise_of_unknown_origin_is_seen() -> None:
    """Where nothing but the spectrum shows that eps is too small: noise of 1e-4 of the values, in float64."""
    noise = 1e-4 * torch.randn(400, 300, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    report = rank((logits(400, 300, 10) + noise).log_softmax(-1))
    for found, expected in ((report.rank, 11), (report.rank_centered, 10)):
        assert (found.low, found.value, found.determinate) == (expected, expected, False)
        assert "a floor of noise stands at σ = 0.003" in found.doubt
    given = rank((logits(400, 300, 10) + noise).log_softmax(-1), eps="float64")
    assert given.rank.determinate  # said to be exact, the noise is part of the matrix


def test_a_store_keeps_what_was_seen(tmp_path: Any) -> None:
    matrix = logits(200, 100, 5).bfloat16().float()
    for kind, given in (("log-probs", matrix.log_softmax(-1)), ("logits", matrix)):
        direct = rank(given, kind=kind)
        stored = rank(dump(open_source(given, kind=kind), tmp_path / f"{kind}.zarr"))
        assert stored.eps == direct.eps
        assert (stored.rank, stored.rank_centered) == (direct.rank, direct.rank_centered)


def test_the_divergence_of_rounded_logits_is_that_of_the_numbers() -> None:
    rounded = logits(60, 200, 10).bfloat16().float().log_softmax(-1)
    P = rounded.double().log_softmax(-1)
    true = float((P.exp() * (P - P.mean(0))).sum(1).mean())
    found = pairwise_kld(rounded)
    assert abs(found.kld - true) < found.roundoff < 1e-5
    sentence = "the numbers look rounded in steps of about 0.0"
    assert all(sentence in str(each) for each in (found, pairwise_kld(rounded, pairs=500)))


def decaying(rows: int, columns: int, d: int, decay: str, *, seed: int = 0) -> Tensor:
    """Logits of rank d with singular values 1/i, or from 1 to 1e-4, of a largest of 3 √(T M)."""
    left = torch.linalg.qr(logits(rows, d, d, seed=seed))[0]
    right = torch.linalg.qr(logits(columns, d, d, seed=seed + 1))[0]
    places = torch.arange(1, d + 1, dtype=torch.float64)
    values = 1 / places if decay == "power law" else torch.logspace(0, -4, d, dtype=torch.float64)
    return left * (3 * math.sqrt(rows * columns) * values) @ right.T


@pytest.mark.parametrize("decay", ["power law", "exponential"])
@pytest.mark.parametrize("change", ["none", "bias", "temperature"])
@pytest.mark.parametrize("before", ["bfloat16", "float16"])
@pytest.mark.parametrize(("rows", "columns", "d"), [(800, 500, 64), (30, 50, 20), (2000, 7, 3), (20, 12, 6)])
def test_spectra_that_decay(rows: int, columns: int, d: int, before: str, change: str, decay: str) -> None:
    """Directions lie below the rounding noise here."""
    rounded = decaying(rows, columns, d, decay).to(TYPES[before]).float()
    if change == "bias":  # an output bias added in float32 after a product in bfloat16
        rounded = rounded + logits(1, columns, 1, seed=5).float()
    elif change == "temperature":
        rounded = rounded / 0.7
    for kind, given in (("log-probs", rounded.log_softmax(-1)), ("logits", rounded)):
        report = rank(given, kind=kind)
        assert_ranks(report, min(d + (change == "bias"), columns - 1))


def test_every_batch_of_a_function_is_looked_at() -> None:
    exact = logits(600, 300, 10).float()
    ids = [np.arange(start, start + 100)[None] for start in range(0, 600, 100)]

    def masked_later(batch: Any) -> Tensor:
        rows = exact[batch].clone()
        rows[..., 7] -= 1e9 * (batch[0, 0] > 0)
        return rows

    def rounded_later(batch: Any) -> Tensor:
        return exact[batch].bfloat16() if batch[0, 0] else exact[batch]

    report = rank(masked_later, data=ids, vocab_size=300)
    assert not report.rank.determinate
    assert report.rank.doubt
    report = rank(rounded_later, data=ids, vocab_size=300)
    assert report.eps.dtype == "bfloat16"
    assert_ranks(report, 10)


@pytest.mark.parametrize("matrix", [np.full((100, 50), -np.log(50)), np.log(np.eye(30) * 0.9 + 0.1 / 30)])
def test_rows_of_one_or_two_numbers(matrix: Any, tmp_path: Any) -> None:
    """Uniform and smoothed one-hot rows: written as JSON, stored and read again."""
    report = rank(matrix)
    json.dumps(report.to_dict(), allow_nan=False)
    assert report.to_dict()["rank_by_rule"]["press"] == report.rank.value == np.linalg.matrix_rank(matrix)
    assert "one number only" not in report.details() or matrix.shape == (100, 50)
    stored = rank(dump(open_source(matrix), tmp_path / "s.zarr"))
    assert stored.eps == report.eps
    json.dumps(pairwise_kld(matrix).eps.to_dict(), allow_nan=False)


def test_whole_numbers_and_single_rows_are_not_taken_for_rounding() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 30, (400, 8)) @ rng.integers(0, 30, (8, 300))
    assert rank(counts, kind="matrix").eps.dtype == "float64"
    matrix = rng.standard_normal((500, 10)) @ rng.standard_normal((10, 300))
    matrix[3] = np.arange(300) * 0.25
    assert rank(matrix, kind="matrix").eps.dtype == "float64"


def test_masks_of_single_contexts_are_told() -> None:
    masked = logits(300, 200, 8).float()
    kept = masked.topk(50, -1).values[:, -1:]
    report = rank(masked.masked_fill(masked < kept, -1e9).log_softmax(-1))
    assert not report.rank.determinate
    assert "masks of single contexts hide what the other entries show" in report.details()


@pytest.mark.parametrize("decay", ["power law", "exponential"])
@pytest.mark.parametrize("printed", ["%.4f", "%.6f", "%.10f", "%.4g", "%.6g", "%.7e"])
def test_a_format_does_not_hide_an_earlier_rounding(printed: str, decay: str, tmp_path: Path) -> None:
    """Log-probabilities of bfloat16 logits, printed with few digits."""
    log_probs = decaying(400, 300, 64, decay).bfloat16().float().log_softmax(-1)
    np.savetxt(tmp_path / "m.csv", log_probs.numpy(), fmt=printed, delimiter=",")
    report = rank(tmp_path / "m.csv", kind="logits")
    assert_ranks(report, 64)
    assert report.eps.coarse.step > 1e-3


@pytest.mark.parametrize("decay", ["power law", "exponential"])
@pytest.mark.parametrize("change", ["row-centred", "normalized", "scaled", "standardized"])
@pytest.mark.parametrize("before", ["bfloat16", "float16"])
def test_rounded_logits_as_a_matrix(before: str, change: str, decay: str) -> None:
    rounded = decaying(400, 300, 64, decay).to(TYPES[before]).float()
    changed = {
        "row-centred": rounded - rounded.mean(1, keepdim=True),
        "normalized": rounded.log_softmax(-1),
        "scaled": rounded / 0.7,
        "standardized": (rounded - rounded.mean(0)) / rounded.std(0),
    }[change]
    report = rank(changed, kind="matrix")
    true = 65 if change in ("normalized", "standardized") else 64
    assert_true(report.rank, true)
    assert not report.rank.determinate
    assert report.eps.coarse is not None


def test_a_matrix_may_repeat_its_entries() -> None:
    """Structure is not a rounding: equal entries of a symmetric Toeplitz matrix, of a diagonal one, and zeros."""
    rng = np.random.default_rng(0)
    distances = np.abs(np.subtract.outer(np.arange(200), np.arange(200)))
    for matrix in (
        rng.standard_normal(200)[distances],
        np.diag(np.arange(1, 201) / 7),
        (rng.random((200, 200)) < 0.1) * rng.standard_normal((200, 1)),
        np.exp(-distances / 200),
        np.exp(-((distances / 3) ** 2)),  # most entries are tiny
        np.column_stack([rng.integers(18, 90, 200), rng.standard_normal((200, 39))]),  # one column of whole numbers
    ):
        report = rank(matrix, kind="matrix")
        assert report.rank.low <= np.linalg.matrix_rank(matrix) <= report.rank.high


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float32"])
def test_logits_rounded_to_whole_numbers(dtype: str) -> None:
    smooth = decaying(400, 300, 64, "exponential").numpy()
    whole = np.round(np.clip(smooth * 10, -100, 100)) + (100 if dtype == "uint8" else 0)
    report = rank(whole.astype(dtype), kind="logits")
    assert not report.rank.determinate
    assert report.eps.coarse.step >= 1
    assert rank(whole.astype(dtype), kind="matrix").rank.determinate


def test_significant_digits_are_a_rounding() -> None:
    smooth = decaying(300, 200, 40, "exponential").numpy()
    digits = np.array([[float(f"{x:.5g}") for x in row] for row in smooth])
    report = rank(digits, kind="matrix")
    assert_true(report.rank, 40)
    assert report.eps.coarse is not None
    stored = rank(smooth.round(3).astype(np.float32), kind="matrix")
    assert 0.0005 < stored.eps.coarse.step < 0.002


@pytest.mark.parametrize("decay", ["power law", "exponential"])
def test_sums_of_rounded_logits(decay: str) -> None:
    """Contrastive decoding and a log-linear ensemble: such sums repeat less often than either summand."""
    one, other = (decaying(400, 300, 40, decay, seed=seed).bfloat16().float().log_softmax(-1) for seed in (0, 7))
    assert_ranks(rank(one - 0.3 * other, kind="logits"), 80)
    assert_ranks(rank((0.3 * one + 0.7 * other).log_softmax(-1)), 80)


@pytest.mark.parametrize("decay", ["power law", "exponential"])
def test_means_of_many_rounded_passes(decay: str) -> None:
    """Eight passes with dropout: their mean lies on a finer lattice than any of them."""
    exact, random = decaying(400, 300, 64, decay), torch.Generator().manual_seed(0)
    noise = [1e-3 * torch.randn(400, 1, dtype=torch.float64, generator=random) for _ in range(8)]
    mean = torch.stack([(exact + each).bfloat16().float() for each in noise]).mean(0)
    report = rank(mean, kind="logits")
    assert_ranks(report, 64)
    assert report.eps.noise is not None


@pytest.mark.parametrize("change", ["unit rows", "z-scores"])
def test_rows_scaled_after_rounding(change: str) -> None:
    rounded = decaying(800, 500, 64, "exponential").bfloat16().float()
    norms = rounded.norm(dim=1, keepdim=True)
    standardized = (rounded - rounded.mean(1, keepdim=True)) / rounded.std(1, keepdim=True)
    report = rank(rounded / norms if change == "unit rows" else standardized, kind="matrix")
    assert not report.rank.determinate
    assert_true(report.rank, 64)
    assert rank(decaying(800, 500, 64, "exponential").float(), kind="matrix").eps.coarse is None


def test_columns_scaled_after_rounding() -> None:
    scales = torch.rand(300, generator=torch.Generator().manual_seed(0)) + 0.5
    report = rank(decaying(800, 300, 64, "power law").bfloat16().float() * scales, kind="logits")
    assert not report.rank.determinate
    assert_ranks(report, 64)


@pytest.mark.parametrize("change", ["row-centred", "less the first token"])
def test_a_centred_matrix_ends_in_a_zero_that_is_no_drop(change: str) -> None:
    rounded = (0.7 * logits(400, 300, 10)).numpy().round(6)
    matrix = rounded - (rounded.mean(1, keepdims=True) if change == "row-centred" else rounded[:, :1])
    report = rank(matrix, kind="matrix")
    assert_true(report.rank, 10)
    assert_true(report.rank_centered, 10)
