"""A doubt, a mask or a precision is not lost on the way from what a user hands in to a number."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from pipelines import low_rank
from softmax_bottleneck import gradient, kld, rank
from softmax_bottleneck.errors import MatrixError
from softmax_bottleneck.heads import MoS, Softmax
from softmax_bottleneck.integrations import training_statistics
from softmax_bottleneck.measure.dumping import dump
from softmax_bottleneck.sources import extended_logits
from softmax_bottleneck.synthetic.cells import Cell, run
from softmax_bottleneck.synthetic.fit import FitConfig

Matrix = NDArray[np.float64]


@pytest.fixture
def masked_in_most() -> Matrix:
    """Logits of rank 10 with a token that 270 of 300 rows mask."""
    matrix = low_rank(300, 100, 10)
    matrix[30:, 7] = -1e9
    return matrix


def test_a_store_keeps_a_doubt(masked_in_most: Matrix, tmp_path: Path) -> None:
    store = tmp_path / "a.zarr"
    dump(masked_in_most.astype(np.float32), store, kind="logits")
    for source in (str(store), store.as_uri()):
        report = rank(source)
        assert (report.rank.low, report.rank.high, report.rank.determinate) == (1, 100, False)
        assert "column 7" in report.rank.doubt


def test_a_store_keeps_the_scale(tmp_path: Path) -> None:
    dump(low_rank(300, 100, 10) * 1e200, tmp_path / "e.zarr", kind="matrix")
    assert rank(tmp_path / "e.zarr").rank.value == 10


@pytest.mark.parametrize("head", ["linear", "softmax", "mos"])
def test_a_bias_may_mask_by_a_large_negative_number(head: str) -> None:
    layer: Any = {
        "linear": nn.Linear(10, 100),
        "softmax": Softmax(hidden_size=10, vocab_size=100),
        "mos": MoS(hidden_size=10, vocab_size=100, components=3),
    }[head]
    with torch.no_grad():
        layer.bias[:90] = torch.linspace(-1, 1, 90)
        layer.bias[90:] = torch.finfo(torch.float32).min
    hidden = torch.randn(300, 10, generator=torch.Generator().manual_seed(0))
    with pytest.raises(MatrixError, match=r"rank\(\) with inf='drop-columns' leaves such tokens out") as caught:
        rank(layer, hidden=hidden)
    assert "'bottleneck rank' with --inf drop-columns leaves such tokens out" in caught.value.for_command
    report = rank(layer, hidden=hidden, inf="drop-columns")
    assert report.spectrum.shape == (300, 90)
    if head != "mos":
        assert (report.rank.value, report.rank_centered.value) == (12, 11)
    assert layer.bias.isfinite().all()


FUNCTIONS = {
    "float32 in float64": lambda logits: logits.astype(np.float32).astype(np.float64),
    "bfloat16 in float32": lambda logits: torch.from_numpy(logits).bfloat16().float(),
    "whole numbers": lambda logits: np.rint(20 * logits).astype(np.int64),
    "with an offset": lambda logits: (logits + 5000).astype(np.float32),
}


@pytest.mark.parametrize("made", FUNCTIONS)
def test_extended_logits_of_a_function_are_inspected(made: str) -> None:
    logits = FUNCTIONS[made](low_rank(200, 200, 6))
    report = rank(extended_logits(lambda ids: logits[ids], [[k] for k in range(100)], [[]], vocab_size=200))
    assert report.rank.low <= 6 <= report.rank.high
    assert report.rank.value == 6 or not report.rank.determinate
    assert report.eps.dtype != "float64" or made == "whole numbers"


def test_masks_in_extended_logits() -> None:
    logits = low_rank(200, 200, 6)
    logits[30:, 5] = -1e9
    histories = [[k] for k in range(60)]
    doubted = rank(extended_logits(lambda ids: logits[ids], histories, [[]], vocab_size=200)).rank
    assert "30 entries lie 9,000 nats or more below" in doubted.doubt
    logits[:30, 5] = -1e9
    with pytest.raises(MatrixError, match="token 5 is masked after every history and future"):
        rank(extended_logits(lambda ids: logits[ids], histories, [[]], vocab_size=200))


def test_extended_logits_in_a_store_are_read_behind_a_url(tmp_path: Path) -> None:
    logits = low_rank(200, 200, 6)
    source = extended_logits(lambda ids: logits[ids], [[k] for k in range(60)], [[]], vocab_size=200)
    dump(source, tmp_path / "x.zarr")
    for name in (str(tmp_path / "x.zarr"), (tmp_path / "x.zarr").as_uri()):
        assert rank(name).rank.value == rank(source).rank.value == 6


def test_a_doubt_follows_from_the_coarser_eps() -> None:
    """A row of a matrix of rank 10 hides all others in float32."""
    loud = low_rank(300, 100, 10)
    loud[0] *= 1e8
    report = rank(loud, kind="matrix", eps="float32")
    assert (report.rank.low, report.rank.high, report.rank.determinate) == (1, 100, False)
    assert rank(loud, kind="matrix").rank.value == 10


def test_the_other_rules_and_the_hidden_size_share_a_doubt(masked_in_most: Matrix) -> None:
    report = rank(masked_in_most, kind="logits", estimate_hidden_size=True)
    rows = dict(report.rows(details=True))
    assert rows["by rule"] == "press 12, numpy 12, gap 12"
    assert rows["rank"] == "between 1 and 100, indeterminate"
    assert rows["hidden size"].startswith("unknown: 270 entries lie")


@pytest.mark.parametrize("number", [0.0, 1e4])
def test_rows_of_one_number_each(number: float) -> None:
    """Whatever was rounded away from them may have had any rank."""
    report = rank(np.full((50, 30), number, np.float32), kind="logits")
    for found, most in ((report.rank, 30), (report.rank_centered, 29)):
        assert (found.low <= 1, found.high, found.determinate) == (True, most, False)
        assert found.doubt.endswith("differ by their roundoff at most: what was rounded away cannot be told")
    assert "σ = inf" not in report.details()


def test_an_offset_does_not_hide_the_precision() -> None:
    """Distances −‖h − w‖² lie far below zero, and are not masks."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((rows, 100)))[0] for rows in (300, 100))
    smooth = left * (300 * 10 ** (-0.08 * np.arange(100))) @ right.T
    rounded = (smooth - 3e4).astype(np.float32)
    report = rank(rounded.astype(np.float64), kind="logits")
    assert report.eps.dtype == "float32"
    as_float32 = rank(rounded, kind="logits").rank
    assert (report.rank.low, report.rank.high) == (as_float32.low, as_float32.high)
    assert not report.rank.determinate


@pytest.mark.parametrize("kind", ["logits", "matrix"])
@pytest.mark.parametrize("decimals", [4, 6, 8])
def test_printed_decimals_are_a_rounding(kind: str, decimals: int, tmp_path: Path) -> None:
    """Singular values that fall by a quarter each, and a file of numbers cut to some decimals."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((rows, 60)))[0] for rows in (300, 100))
    smooth = left * (300 * 10 ** (-0.12 * np.arange(60))) @ right.T
    np.savetxt(tmp_path / "m.csv", smooth, fmt=f"%.{decimals}f", delimiter=",")
    report = rank(tmp_path / "m.csv", kind=kind)
    assert not report.rank.determinate
    # Six decimals of numbers below ten are also the shortest ones of float32.
    assert report.eps.dtype == "float32" or 0.5 < report.eps.coarse.step * 10**decimals < 2
    assert rank(smooth, kind="matrix").rank.value == 60
    exact = np.outer(np.arange(1, 11), np.arange(1, 9)) / 10
    report = rank(exact, kind="matrix")
    assert (report.rank.value, report.eps.coarse) == (1, None)  # numbers of few digits may be exact


def test_a_sketch_proves_no_more_than_the_numbers_hold() -> None:
    logits = low_rank(400, 300, 20).astype(np.float32)
    report = rank(logits, kind="logits", eps="float64", method="sketch", width=100)
    assert report.rank.value == report.rank.low == 21


def test_columns_of_infinities_do_not_count_as_entries() -> None:
    logits = (low_rank(300, 100, 10) + 1e4).astype(np.float32)
    padded = np.concatenate([logits, np.full((300, 900), -np.inf, np.float32)], 1)
    dropped, plain = rank(padded, kind="logits", inf="drop-columns"), rank(logits, kind="logits")
    assert dropped.rank.tolerance == pytest.approx(plain.rank.tolerance)


def test_the_gradient_leaves_masked_tokens_out() -> None:
    rng = torch.Generator().manual_seed(0)
    weight, hidden = torch.randn(100, 8, generator=rng), torch.randn(300, 8, generator=rng)
    targets = torch.randint(0, 50, (300,), generator=rng)
    plain = gradient(Softmax.of(weight[:50]), hidden=hidden, targets=targets).kept
    first = gradient(Softmax.of(weight[:50]), hidden=hidden, targets=targets, contexts=100)
    assert first.kept == gradient(Softmax.of(weight[:50]), hidden=hidden[:100], targets=targets[:100]).kept
    weight[50:] = 30 * weight[50:] + 5
    bias = torch.zeros(100)
    bias[50:] = -torch.inf
    assert gradient(Softmax.of(weight, bias), hidden=hidden, targets=targets).kept == pytest.approx(plain, rel=1e-5)
    mixture, smaller = (MoS(hidden_size=8, vocab_size=vocab, components=3, embedding_size=8) for vocab in (100, 50))
    smaller.load_state_dict({n: v[:50] if n in ("weight", "bias") else v for n, v in mixture.state_dict().items()})
    with torch.no_grad():
        mixture.bias[50:] = -torch.inf  # type: ignore[index]
    with_masks, without = (gradient(head, hidden=hidden, targets=targets, sample=5).kept for head in (mixture, smaller))
    assert with_masks == pytest.approx(without, rel=1e-4)


@pytest.mark.parametrize("pairs", ["all", 100])
def test_masks_of_single_contexts_are_no_divergence(masked_in_most: Matrix, pairs: Any, tmp_path: Path) -> None:
    dump(masked_in_most, tmp_path / "s.zarr", kind="logits")
    for source in (masked_in_most, tmp_path / "s.zarr"):
        kind = "logits" if source is masked_in_most else "log-probs"
        with pytest.raises(MatrixError, match="270 of 300 contexts mask token 7 by 9,000 nats or more"):
            kld(source, kind=kind, pairs=pairs)
    everywhere = low_rank(300, 100, 10)
    expected = kld(np.delete(everywhere, 7, axis=1), kind="logits", pairs=pairs).kld
    everywhere[:, 7] = -1e9
    assert kld(everywhere, kind="logits", pairs=pairs).kld == pytest.approx(expected)


def test_the_divergence_of_a_store_has_the_roundoff_of_its_logits(tmp_path: Path) -> None:
    logits = 0.02 * np.random.default_rng(0).standard_normal((300, 5))
    rounded = (logits + 2**16).astype(np.float32)
    dump(rounded, tmp_path / "s.zarr", kind="logits")
    found, sampled = (kld(tmp_path / "s.zarr", pairs=pairs) for pairs in ("all", 1000))
    error = abs(found.kld - kld(logits, kind="logits").kld)
    assert min(found.roundoff, sampled.roundoff) > error > 0


@pytest.mark.parametrize("kind", ["logits", "log-probs"])
@pytest.mark.parametrize("fill", [-100.0, -20.0, "lowest", "rest"])
def test_truncated_rows_are_a_doubt(fill: float | str, kind: str) -> None:
    """The k likeliest tokens of an interface, with something in place of the others."""
    log_probs = torch.from_numpy(low_rank(300, 200, 30)).log_softmax(-1)
    kept = log_probs.topk(20, -1)
    rest = ((1 - kept.values.exp().sum(1, keepdim=True)) / 180).log()
    others = (
        rest
        if fill == "rest"
        else log_probs.min(1, keepdim=True).values
        if fill == "lowest"
        else torch.tensor(fill).double()
    )
    filled = others.expand(300, 200).clone().scatter_(1, kept.indices, kept.values).float()
    report = rank(filled if kind == "logits" else filled.log_softmax(-1), kind=kind)
    assert (report.rank.low, report.rank.high, report.rank.determinate) == (1, 200, False)
    assert "about 180 of a row's 200 entries are its lowest number" in report.rank.doubt


def test_rows_that_were_never_filled_are_a_doubt() -> None:
    logits = np.zeros((300, 200))
    logits[:290] = low_rank(290, 200, 5)
    report = rank(logits, kind="logits")
    assert not report.rank.determinate
    assert "10 of 300 sampled rows hold one number" in report.rank.doubt
    assert "one number" not in rank(logits[:290], kind="logits").rank.doubt


def test_floors_are_a_doubt_and_equal_tokens_are_none() -> None:
    log_probs = torch.from_numpy(3 * low_rank(300, 200, 10)).log_softmax(-1)
    for floored in (log_probs.exp().add(1e-8).log(), log_probs.clamp_min(-20)):
        assert rank(floored, kind="logits").rank.low == 1
    padded = torch.cat([log_probs, torch.full((300, 9), -60.0)], 1).log_softmax(-1)  # unused tokens of one embedding
    assert rank(padded).rank.doubt == ""


def test_a_mask_is_seen_after_normalization() -> None:
    masked = torch.from_numpy(low_rank(300, 100, 10) - 60)
    masked[:, 90:] = -5e3
    assert "stands for several tokens, 104 nats or more below" in rank(masked.float().log_softmax(-1)).rank.doubt
    partly = torch.from_numpy(low_rank(300, 100, 10))
    partly[:200, 50:] = -60  # as constrained decoding does in some contexts, and not in others
    assert "about 50 of a row's 100 entries are its lowest number" in rank(partly.log_softmax(-1)).rank.doubt


def float32_logits(copies: str, rank: int = 18) -> Matrix:
    """Logits of float32 over a temperature of float64, with repeated contexts or tokens."""
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((256, rank)).astype(np.float32)
    weight = rng.standard_normal((400, rank)).astype(np.float32)
    if copies.endswith("rows"):
        hidden[: int(copies.split()[0])] = hidden[0]
    elif copies.endswith("columns"):
        weight[: int(copies.split()[0])] = weight[0]
    logits = (hidden @ weight.T) / np.float64(0.7)
    return np.hstack([logits, np.full((256, 20), -3.0)]) if copies == "unused" else logits


@pytest.mark.parametrize("kind", ["logits", "log-probs", "matrix"])
@pytest.mark.parametrize("copies", ["1 rows", "2 rows", "3 rows", "8 rows", "5 columns", "150 columns", "unused"])
def test_copies_do_not_end_the_roundoff(copies: str, kind: str) -> None:
    """The zeros that copies leave are not a drop, and roundoff that fills all other directions does not count."""
    logits = float32_logits(copies)
    numbers = logits if kind == "logits" else torch.from_numpy(logits).log_softmax(-1).numpy()
    report = rank(numbers, kind=kind)
    true = 19 if copies == "unused" else 18
    assert (report.rank.low, report.rank.value) == (true + 1, true + 1), copies
    assert (report.rank_centered.low, report.rank_centered.value) == (true, true), copies


def test_copies_of_exact_numbers_leave_their_rank() -> None:
    exact = low_rank(1300, 900, 20)
    exact[:300] = exact[0]
    exact[:, 700:] = exact[:, 700:701]
    report = rank(exact, kind="logits")
    assert report.rank.low == report.rank.value == 21
    assert report.rank_centered.low == report.rank_centered.value == 20


def test_copies_are_counted_exactly(tmp_path: Path) -> None:
    """Rows of equal energy are not copies; equal rows of different blocks are; a store keeps their number."""
    assert rank(np.eye(40), kind="matrix").eps.distinct is None
    numbers = low_rank(300, 200, 30).astype(np.float16)
    numbers[250:] = numbers[3]
    numbers[:, 9] = numbers[:, 4]
    blocks = [numbers[:100], numbers[100:260], numbers[260:]]
    for source in (numbers, blocks, np.asfortranarray(numbers)):
        assert rank(source, kind="logits").eps.distinct == (250, 199)
    dump(numbers, tmp_path / "a.zarr", kind="logits")
    assert rank(tmp_path / "a.zarr").eps.distinct == (250, 199)


def test_contexts_that_are_copies_are_named() -> None:
    """Thirty contexts of a model with d = 64 show a rank of thirty, however often they are repeated."""
    repeated = low_rank(30, 300, 64).astype(np.float32)[np.arange(300) % 30]
    report = rank(repeated, kind="logits", eps="float32")  # so few contexts do not show whether they were rounded
    assert report.rank.value == 30
    assert "as many as there are different contexts" in report.verdict
    assert report.next == "measure more than 300 different contexts"


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e4])
def test_an_offset_of_the_bias_changes_no_rank(offset: float) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(32, 500)
    with torch.no_grad():
        layer.bias += offset
    report = rank(layer, hidden=torch.randn(600, 32))
    assert (str(report.rank), str(report.rank_centered)) == ("34", "33")


def test_copies_of_contexts_do_not_tell_the_hidden_size() -> None:
    distinct = low_rank(30, 200, 64)
    repeated = torch.from_numpy(distinct[np.arange(300) % 30]).log_softmax(-1)
    values = rank(repeated, estimate_hidden_size=True).to_dict()["hidden_size_estimate"]
    assert values["value"] is None
    assert "only 30 different rows and 200 different columns" in values["why"]
    values = rank(repeated[:, :1], kind="logits", estimate_hidden_size=True).to_dict()["hidden_size_estimate"]
    assert values["value"] is None


@pytest.mark.parametrize("floor", [-5000.0, -500.0])
def test_a_floor_for_missing_values_is_a_doubt(floor: float) -> None:
    matrix = low_rank(300, 100, 10)
    assert rank(matrix.astype(np.float32), kind="logits").rank.determinate
    matrix[::2, 7] = matrix[::3, 9] = floor
    report = rank(matrix.astype(np.float32), kind="logits")
    assert (report.rank.low, report.rank.high) == (1, 100)
    assert f"the lowest number of 200 rows is {floor:g}" in report.rank.doubt


def test_tokens_that_all_contexts_mask_take_no_part_in_the_divergence() -> None:
    matrix = low_rank(200, 12, 5)
    expected = kld(np.delete(matrix, 3, axis=1), kind="logits").kld
    # By −10,000 some rows mask a little less: their likeliest token would have been this one.
    for mask in (-1e4, -1e5, -np.inf):
        masked = matrix.copy()
        masked[:, 3] += mask
        assert kld(masked, kind="logits").kld == pytest.approx(expected)
    bias = torch.zeros(30)
    bias[3] = -torch.inf
    weight, hidden = torch.randn(30, 8), torch.randn(50, 8)
    found = training_statistics(Softmax.of(weight, bias), hidden)
    plain = kld(Softmax.of(weight[torch.arange(30) != 3]), hidden=hidden)
    assert found["pairwise_kl"] == pytest.approx(plain.kld, rel=1e-5)


def test_the_divergence_of_a_head_has_the_roundoff_of_its_bias() -> None:
    torch.manual_seed(0)
    layer, hidden = nn.Linear(64, 50), torch.randn(100, 64)
    with torch.no_grad():
        layer.bias.fill_(1e4)
    exact = kld(copy.deepcopy(layer).double(), hidden=hidden.double())
    found = kld(layer, hidden=hidden)
    assert 0 < abs(found.kld - exact.kld) < found.roundoff


def test_small_divergences_keep_their_digits() -> None:
    p = np.full((3, 4), 0.25) + 1e-4 * np.array([[1, -1, 0, 0], [-1, 1, 0, 0], [0, 0, 1, -1]])
    rows = np.log(p)
    true = (p[:, None] * (rows[:, None] - rows)).sum(2).mean()
    assert f"divergence {true:.4g} ±" in str(kld(rows))
    assert kld(rows, pairs=np.int64(10)).pairs == 10  # type: ignore[arg-type]


def test_a_fit_that_still_descends_has_not_diverged() -> None:
    """Near the uniform distribution almost any start is worse than twice its divergence."""
    cell = Cell(model="softmax", alpha=1000.0, vocab=20, dim=2, contexts=50, seed=0, fit=FitConfig(cycles=1, rounds=0))
    result = run(cell)
    assert not result["diverged"]
    assert result["kl"] <= result["curve"][0][1]
