"""A thousand pipelines drawn at random: no wrong determinate rank, no interval without the truth, no false proof."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from pipelines import ROUNDINGS, assert_true, draw, low_rank
from softmax_bottleneck import kld, perplexity, rank
from softmax_bottleneck.errors import MatrixError, TrainingError
from softmax_bottleneck.spectrum import EPS, Spectrum, find_noise, judge, precision
from softmax_bottleneck.theory import minimal_rank

CASES, EACH, FIRST, LARGEST = 1000, 50, 20_000, (500, 250)
"""Cases, those of one test, the seed of the first, and the size of the largest."""


@pytest.mark.parametrize("first", range(FIRST, FIRST + CASES, EACH))
def test_a_random_pipeline(first: int) -> None:
    clean = determinate = 0
    for seed in range(first, first + EACH):
        case = draw(seed, LARGEST)
        spread = case.matrix.max(1, keepdims=True) - case.matrix
        masked = case.options["kind"] != "matrix" and (spread.min(0) > 1e4).any()
        if masked or not np.isfinite(spread).all():  # float32 rounds a probability to zero
            with pytest.raises(MatrixError, match="only finite numbers"):
                rank(case.matrix, **case.options)
            continue
        report = rank(case.matrix, **case.options)
        assert_true(report.rank, case.rank, (seed, case.steps), case.visible[0])
        assert_true(report.rank_centered, case.centered, (seed, case.steps, "row-centred"), case.visible[1])
        clean += 2 * case.clean
        determinate += case.clean * (report.rank.determinate + report.rank_centered.determinate)
    assert determinate >= 0.7 * clean  # 0.9 over all


@pytest.mark.parametrize(
    ("seed", "largest"), [(603_568, LARGEST), (606_162, LARGEST), (802_257, LARGEST), (907_585, (1200, 500))]
)
def test_what_stands_alone_above_the_roundoff_leaves_the_rank_open(seed: int, largest: tuple[int, int]) -> None:
    """A direction of the means below the tolerance, a rounding of one direction, one subnormal probability, and a
    direction of the means that stands above the noise, but not above the rounding of log Z."""
    case = draw(seed, largest)
    report = rank(case.matrix, **case.options)
    assert not report.rank.determinate
    assert_true(report.rank, case.rank, case.steps, case.visible[0])
    assert_true(report.rank_centered, case.centered, case.steps, case.visible[1])


def test_a_direction_of_a_few_entries_is_not_the_noise() -> None:
    """Heavy tails in int8: the second direction looks like noise of random signs, and hid the floor behind it."""
    case = draw(209_407)
    report = rank(case.matrix, **case.options)
    assert_true(report.rank, case.rank, case.steps)
    assert_true(report.rank_centered, case.centered, case.steps)


def test_divide_and_conquer_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does in OpenBLAS on this matrix, and wherever NumPy is told so."""
    case = draw(401_913, LARGEST)
    before = rank(case.matrix, **case.options)
    assert_true(before.rank, case.rank, case.steps)
    svd = np.linalg.svd

    def failing(matrix: np.ndarray, *, full_matrices: bool = True, compute_uv: bool = True) -> object:
        if compute_uv:
            raise np.linalg.LinAlgError
        return svd(matrix, compute_uv=False)

    monkeypatch.setattr(np.linalg, "svd", failing)
    after = rank(case.matrix, **case.options)
    assert (after.rank.low, after.rank.high) == (before.rank.low, before.rank.high)


def test_the_exact_rank_of_a_pipeline_is_that_of_its_exact_matrix() -> None:
    compared = 0
    for case in map(draw, range(200)):
        if case.clean and case.matrix.dtype == np.float64 and case.options["kind"] != "logits":
            values = np.linalg.svd(case.matrix, compute_uv=False)
            assert case.rank == (values > 1e-12 * values[0]).sum(), case.steps
            compared += 1
    assert compared > 20


def test_the_count_by_numpys_rule_stays_its_own() -> None:
    matrix = low_rank(800, 3000, 60, decay=4).astype(np.float32)
    report = rank(matrix, kind="matrix")
    assert (report.rank.value, report.rank.determinate) == (60, True)
    counted = int(np.linalg.matrix_rank(matrix))
    assert counted < 60
    assert report.to_dict()["rank_by_rule"] == {"press": 60, "numpy": counted, "gap": 60}


def biased(quantized: np.ndarray, seed: int = 1) -> Tensor:
    return torch.from_numpy(quantized + np.random.default_rng(seed).standard_normal(quantized.shape[1]))


def test_a_step_of_its_own_for_each_row_and_a_bias() -> None:
    for rows, columns, d in ((600, 300, 20), (2000, 500, 64)):
        logits = low_rank(rows, columns, d)
        step = np.abs(logits).max(1, keepdims=True) / 127
        given = biased(np.rint(logits / step) * step).float().log_softmax(1)
        report = rank(given)
        assert (report.rank.low, report.rank_centered.low, report.rank.determinate) == (d + 2, d + 1, False)
        assert "the numbers look rounded in steps of about 0." in str(kld(given))
    scale = np.exp(np.random.default_rng(2).standard_normal((600, 1)))
    scaled = ROUNDINGS["bfloat16"](low_rank(600, 300, 20)) * scale
    assert_true(rank(biased(scaled).log_softmax(1)).rank, 22)


@pytest.mark.parametrize("method", ["dense", "sketch"])
def test_a_sketch_passes_every_doubt(method: str) -> None:
    p = torch.softmax(torch.from_numpy(3 * low_rank(400, 50, 10)), 1).float().double().numpy()
    for width in (32, 1024):
        report = rank(np.log(p), kind="logits", method=method, width=width)
        assert_true(report.rank, 11)
        assert report.rank.low == 11
    noisy = low_rank(400, 300, 20) + 1e-3 * np.random.default_rng(3).standard_normal((400, 300))
    report = rank(noisy, kind="matrix", method=method, width=64)
    assert (report.rank.low, report.rank.determinate) == (20, False)
    assert "a floor of noise stands at" in report.details()


def test_auto_takes_a_sketch_that_passes_every_doubt() -> None:
    p = torch.softmax(torch.from_numpy(low_rank(3000, 600, 10)), 1).float().double().numpy()
    report = rank(np.log(p), kind="logits", max_memory="4MiB", width=64)
    assert report.spectrum.method == "sketch"
    assert_true(report.rank, 11)


def z_scores(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(0)) / x.std(0)


EARLIER = {
    "columns of mean 0": (z_scores(ROUNDINGS["bfloat16"](low_rank(100, 1000, 20, decay=3))), 20),
    "eight bits": (z_scores(ROUNDINGS["int8"](low_rank(2000, 200, 7))), 7),
    "float16": (z_scores(ROUNDINGS["float16"](low_rank(400, 200, 49))), 49),
    "printed": (z_scores(np.round(low_rank(400, 200, 15), 2)), 15),
    "a mean of 150": (ROUNDINGS["bfloat16"](low_rank(1000, 500, 20) + 150), 21),
    "row-centred decimals": (np.round(low_rank(400, 300, 1) + 150, 1), 2),
}


@pytest.mark.parametrize("made", EARLIER)
def test_an_earlier_rounding_of_another_size(made: str) -> None:
    matrix, exact = EARLIER[made]
    report = rank(matrix, kind="matrix")
    assert_true(report.rank, exact)
    assert not report.rank.determinate
    centered = matrix - matrix.mean(1, keepdims=True)
    least = exact - made.startswith(("a mean", "row-centred"))
    sizes = centered.std(1, keepdims=True)
    for again in (centered, centered / np.where(sizes > 0, sizes, 1)):
        assert_true(rank(again, kind="matrix").rank, least)


def test_probabilities_of_nine_decimals() -> None:
    p = torch.softmax(torch.from_numpy(low_rank(400, 200, 37) / 3), 1).numpy().round(9)
    report = rank(np.log(np.maximum(p, 1e-9)), kind="logits")
    assert_true(report.rank, 38)


@pytest.mark.parametrize("offset", [1e6, 1e4, -1e4])
def test_a_head_with_a_common_offset(offset: float) -> None:
    layer = torch.nn.Linear(8, 300)
    with torch.no_grad():
        layer.bias.add_(offset)
    for method in ("dense", "auto"):
        report = rank(layer, hidden=torch.randn(400, 8, generator=torch.Generator().manual_seed(0)), method=method)
        assert_true(report.rank, 10)
        assert_true(report.rank_centered, 9)
        assert report.rank.determinate <= (report.rank.value <= report.bound["raw"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [800.0, 1e5, -1e5])
def test_logits_beyond_the_exponential(offset: float, dtype: type) -> None:
    logits = (low_rank(60, 40, 5) + offset).astype(dtype)
    assert_true(rank(logits, kind="logits").rank, 6)
    assert np.isfinite(kld(logits, kind="logits").kld)
    equal = rank(np.full((30, 20), offset * 1e295), kind="logits")
    assert "zero" not in equal.verdict


def test_a_row_shift_does_not_raise_the_minimal_rank() -> None:
    for seed in range(100):
        shift = np.random.default_rng(seed).standard_normal((30, 1)) * 10.0 ** (seed % 5)
        assert minimal_rank(low_rank(30, 20, 1, seed=seed) + shift).rank == 1


def test_a_hidden_size_is_not_named_where_the_rank_is_open() -> None:
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal((300, 3)) * [1, 0.03, 0.001]) @ rng.standard_normal((3, 250))
    report = rank(torch.from_numpy(logits).half(), kind="logits", estimate_hidden_size=True)
    assert "unknown" in dict(report.rows())["hidden size"]


@pytest.mark.parametrize(
    ("hidden", "raw"), [(3.6e-4, (198, 198, True)), (1.2e-5, (197, 198, False)), (5.1e-6, (197, 197, True))]
)
def test_a_direction_that_the_raw_tolerance_hides(hidden: float, raw: tuple[int, int, bool]) -> None:
    """A float32 model: the row-centred rank and the algebra settle the raw one, whose tolerance its mean raises.

    A direction that stands a little above the roundoff may be there, as in the random pipeline 603,568.
    """
    tail = np.linspace(5e-6, 1e-6, 301)
    values = np.r_[2930.0, np.linspace(60, 20, 196), hidden, tail]
    centered = np.r_[np.linspace(60, 20, 197), 5e-6, tail]
    judgement = judge(Spectrum(values, centered, (1500, 499), "dense", 0.0), precision("float32"))
    assert (judgement.centered.value, judgement.centered.determinate) == (197, True)
    assert (judgement.raw.low, judgement.raw.high, judgement.raw.determinate) == raw


def test_a_common_loss_beyond_the_exponential() -> None:
    with pytest.raises(TrainingError, match="check that the targets belong to these contexts"):
        perplexity(torch.nn.Linear(4, 20), hidden=1e5 * torch.randn(50, 4), targets=torch.arange(50) % 20)


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("side", ["rows", "columns"])
@pytest.mark.parametrize("finer", [None, 6])
def test_a_rounding_of_some_rows_or_columns(side: str, share: float, finer: int | None) -> None:
    """Two checkpoints, or two vocabularies: the noise of the one stands above that of the other."""
    matrix = low_rank(500, 250, 13, decay=2)
    part = matrix[: int(share * 500)] if side == "rows" else matrix[:, : int(share * 250)]
    part[:] = np.round(part, 2)
    report = rank(matrix if finer is None else np.round(matrix, finer), kind="matrix")
    assert_true(report.rank, 13)
    assert_true(report.rank_centered, 13)


def test_noise_is_seen_whatever_its_shape() -> None:
    rng = np.random.default_rng(0)
    signal = low_rank(300, 200, 12)
    for size in (1.0, np.exp(rng.standard_normal((300, 1))), np.exp(rng.standard_normal(200)), np.abs(signal)):
        noise = 1e-4 * size * rng.standard_normal(signal.shape)
        found = find_noise(signal + noise, eps=EPS["float64"])
        assert 0.5 < found.deviation * (math.sqrt(300) + math.sqrt(200)) / np.linalg.norm(noise, 2) < 1.1
    assert find_noise(rng.standard_normal((300, 200)), eps=EPS["float64"]) is None  # noise alone is the matrix


@pytest.mark.parametrize("d", [400, 700, 1000])
def test_noise_is_seen_behind_directions_that_fill_half_of_the_sample(d: int) -> None:
    """The first 512 columns alone hold no noise from 504 directions on."""
    found = find_noise(np.round(low_rank(2048, 1024, d), 1), eps=EPS["float64"])
    assert found.is_coarse
    assert found.step == pytest.approx(0.1, rel=0.05)


def test_random_numbers_are_a_matrix_of_full_rank_and_not_its_noise() -> None:
    for rows in (1280, 2048):
        assert find_noise(np.random.default_rng(0).standard_normal((rows, 1024)), eps=EPS["float64"]) is None


def test_clean_numbers_are_determinate() -> None:
    for dtype in (np.float32, np.float64):
        for seed in range(20):
            report = rank(low_rank(200, 100, 3 + seed, seed=seed).astype(dtype), kind="logits")
            assert (report.rank.value, report.rank.determinate) == (4 + seed, True)
            assert (report.rank_centered.value, report.rank_centered.determinate) == (3 + seed, True)


def test_the_decompositions_own_error_is_not_a_direction() -> None:
    """LAPACK's error of a large mean stood 33 times above the noise of the numbers: rank 5 instead of 4."""
    values = np.r_[7.88097759e5, 378.757448, 336.285957, 276.399707, 1.89602379e-10, np.full(57, 5e-12)]
    centered = np.r_[2794.09504, 377.576133, 335.703053, 274.572791, np.full(58, 5e-12)]
    spectrum = Spectrum(values, centered, (1113, 62), "dense", 2e-16, error=1.7e-10, centered_error=6e-13)
    judged = judge(spectrum, precision("float64"))
    assert (str(judged.raw), str(judged.centered)) == ("4", "4")
