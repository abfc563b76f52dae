"""A doubt, a mask or a precision is not lost on the way from what a user hands in to a number."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pipelines import low_rank
from softmax_bottleneck import compare, gradient, heads, kld, pairwise_kld, perplexity, rank, singular_values
from softmax_bottleneck.errors import MatrixError, SourceError, StoreError
from softmax_bottleneck.heads import MoS, Softmax
from softmax_bottleneck.integrations import training_statistics
from softmax_bottleneck.language_models.checkpoint import load
from softmax_bottleneck.measure.dumping import dump
from softmax_bottleneck.sources import extended_logits
from softmax_bottleneck.spectrum.blocks import as_array
from softmax_bottleneck.synthetic.cells import Cell, run
from softmax_bottleneck.synthetic.fit import FitConfig

Matrix = NDArray[np.float64]


@pytest.fixture
def masked_in_most() -> Matrix:
    """Logits of rank 10 with a token that 270 of 300 rows mask."""
    matrix = low_rank(300, 100, 10)
    matrix[30:, 7] = -1e9
    return matrix


@pytest.fixture
def loud() -> Matrix:
    """A matrix of rank 10 with a row that hides all others in float32."""
    matrix = low_rank(300, 100, 10)
    matrix[0] *= 1e8
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
    assert "30 entries lie 10,000 nats or more below" in doubted.doubt
    logits[:30, 5] = -1e9
    with pytest.raises(MatrixError, match="token 5 is masked after every history and future"):
        rank(extended_logits(lambda ids: logits[ids], histories, [[]], vocab_size=200))


def test_extended_logits_in_a_store_are_read_behind_a_url(tmp_path: Path) -> None:
    logits = low_rank(200, 200, 6)
    source = extended_logits(lambda ids: logits[ids], [[k] for k in range(60)], [[]], vocab_size=200)
    dump(source, tmp_path / "x.zarr")
    for name in (str(tmp_path / "x.zarr"), (tmp_path / "x.zarr").as_uri()):
        assert rank(name).rank.value == rank(source).rank.value == 6


def test_the_first_contexts_are_inspected_alone(loud: Matrix) -> None:
    both = loud.copy()
    both[100:] *= 1e8
    with_others, alone = (rank(part, kind="matrix", eps="float32", **more) for part, more in (
        (both, {"contexts": 100}), (both[:100], {})))  # fmt: skip
    assert with_others.rank == alone.rank
    assert not alone.rank.determinate
    logits = (3 * low_rank(300, 100, 10)).astype(np.float32)
    logits[200:, 7] = -1e9
    assert rank(logits, kind="logits", contexts=200).rank == rank(logits[:200], kind="logits").rank
    blocks = [torch.from_numpy(logits[start : start + 100]).bfloat16() for start in (0, 100, 200)]
    assert rank(iter(blocks), kind="logits", contexts=200).eps.dtype == "bfloat16"


def test_a_doubt_follows_from_the_coarser_eps(loud: Matrix) -> None:
    report = rank(loud, kind="matrix", eps="float32")
    assert (report.rank.low, report.rank.high, report.rank.determinate) == (1, 100, False)
    assert rank(loud, kind="matrix").rank.value == 10


def test_the_other_rules_and_the_hidden_size_share_a_doubt(masked_in_most: Matrix) -> None:
    report = rank(masked_in_most, kind="logits", estimate_hidden_size=True)
    rows = dict(report.rows(details=True))
    assert rows["by rule"] == "press 12, numpy 12, gap 12"
    assert rows["rank"] == "between 1 and 100, indeterminate"
    assert rows["hidden size"].startswith("unknown: 270 entries lie")


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


def test_another_model_is_not_taken_for_the_one_in_a_store(runs: dict[str, Path], tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(0)
    weight, hidden = torch.randn(100, 8, generator=rng), torch.randn(50, 8, generator=rng)
    dump(Softmax.of(weight, scale=1.0), tmp_path / "head.zarr", hidden=hidden)
    with pytest.raises(StoreError, match="another model"):
        dump(Softmax.of(weight, scale=3.0), tmp_path / "head.zarr", hidden=hidden)
    logits = low_rank(200, 200, 6)
    once, twice = (
        extended_logits(lambda ids, by=factor: by * logits[ids], [[1], [2]], [[]], vocab_size=200) for factor in (1, 2)
    )
    dump(once, tmp_path / "function.zarr")
    with pytest.raises(StoreError, match="another logits"):
        dump(twice, tmp_path / "function.zarr")
    run = load(runs["softmax"])
    dump(run, tmp_path / "run.zarr", contexts=20)
    with torch.no_grad():
        run.model.head.weight.mul_(3)
    with pytest.raises(StoreError, match="another model"):
        dump(run, tmp_path / "run.zarr", contexts=20)


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
        with pytest.raises(MatrixError, match="270 of 300 contexts mask token 7 by 10,000 nats or more"):
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


def test_a_function_may_reuse_its_memory() -> None:
    logits = np.random.default_rng(0).standard_normal((50, 50))
    memory = np.empty((1, 25, 50))

    def answer(ids: Any) -> Any:
        memory[:] = logits[ids]
        return memory

    assert rank(answer, data=list(np.arange(50).reshape(2, 1, 25))).rank.value == 50


@pytest.mark.parametrize("name", ["gss", "lms-plif", "mixtape"])
def test_heads_with_parameters_of_every_shape_are_dumped(name: str, tmp_path: Path) -> None:
    head = heads.build(name, hidden_size=4, vocab_size=9)
    dump(head, tmp_path / "s.zarr", hidden=torch.randn(5, 4))
    assert rank(tmp_path / "s.zarr").spectrum.shape == (5, 9)


def test_a_layer_that_is_no_product_is_refused() -> None:
    class Capped(nn.Linear):
        def forward(self, states: Tensor) -> Tensor:
            return 2 * torch.tanh(super().forward(states) / 2)

    hooked = nn.Linear(10, 300)
    hooked.register_forward_hook(lambda module, args, output: output**2)
    hidden = torch.randn(400, 10)
    for layer in (Capped(10, 300), Capped(10, 300).bfloat16(), hooked):
        with pytest.raises(SourceError, match=r"does not compute .* measure it through a function"):
            rank(layer, hidden=hidden)
    clamped = nn.Linear(10, 300)
    clamped.register_forward_hook(lambda module, args, output: output.clamp(-3, 3))
    with pytest.raises(SourceError, match="does not compute"):
        rank(clamped, hidden=torch.cat([hidden / 10, 10 * hidden[:1]]))
    for scale in (1e-5, 1e5):  # beyond float16
        assert rank(nn.Linear(10, 300, bias=False).half(), hidden=scale * hidden).rank.high >= 11
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(10, 300))
    assert rank(normed, hidden=hidden).rank.value == 12


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_an_index_is_no_token(suffix: str, tmp_path: Path) -> None:
    table = pd.DataFrame(low_rank(300, 100, 10)).rename(columns=str)
    kept = table[table["0"] > 0]
    path = tmp_path / f"m.{suffix}"
    if suffix == "parquet":
        kept.to_parquet(path)  # with the index, as a column that its metadata names
        assert rank(path, kind="matrix").rank.value == 10
        kept.reset_index().to_parquet(path)
    else:
        kept.rename_axis("document").to_csv(path)
    with pytest.raises(SourceError, match=r"column 0, (index|document), holds whole numbers and others do not, as an"):
        rank(path, kind="matrix")
    table.assign(target=np.arange(300) % 7).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(SourceError, match="column 100, target, holds whole numbers"):
        rank(tmp_path / "t.csv", kind="matrix")


def test_a_text_files_first_line_is_a_header_or_a_row(tmp_path: Path) -> None:
    """Whatever it begins with: a byte order mark, quotes, a blank line, a comment, a title, ids, a missing number."""
    matrix, path = low_rank(60, 40, 5), tmp_path / "m.csv"
    lines = [",".join(map(repr, row)) for row in matrix.tolist()]
    quoted = [",".join(f'"{number!r}"' for number in row) for row in matrix.tolist()]
    for text in (
        "\ufeff" + "\n".join(lines),
        "\n".join(quoted),
        "\n" + "\n".join(lines),
        "# title\n" + "\n".join(lines),
        "\n".join([",".join(["##ing", "a#b", *["c"] * 38]), *lines]),
    ):
        path.write_text(text, encoding="utf-8")
        report = rank(path, kind="matrix")
        assert (report.spectrum.shape, report.rank.value) == ((60, 40), 5)
    for first, complaint in (
        ("logits of my model", "its first line has 1 fields and its second 40"),
        ("logits, my model", "its first line has 2 fields and its second 40"),
        (",".join(map(str, range(1000, 1040))), "the first line holds another whole number in every column"),
        ("NA" + ",1.5" * 39, "could not convert string 'NA'"),
        ("-Infinity" + ",1.5" * 39, "holds -inf at row 0, column 0"),
    ):
        path.write_text("\n".join([first, *lines]), encoding="utf-8")
        with pytest.raises((SourceError, MatrixError), match=complaint):
            rank(path, kind="matrix")


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
    masked[:, 90:] = -1e4
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


def test_tokens_masked_in_blocks_are_left_out() -> None:
    """As the scores of ``generate`` are, one block a step, where some tokens are suppressed."""
    logits = low_rank(300, 100, 16)
    logits[:, [5, 6]] = -np.inf
    for blocks in ([logits[:150], logits[150:]], iter([logits[:150], logits[150:]])):
        assert rank(blocks, kind="logits", inf="drop-columns").rank.low == 17
    with pytest.raises(MatrixError, match="holds -inf at row 0, column 5: only finite numbers can be measured"):
        rank([logits[:150], logits[150:]], kind="logits")
    assert kld([logits[:150], logits[150:]], kind="logits").kld == kld(logits, kind="logits").kld


def test_a_row_of_minus_infinity_alone_is_named() -> None:
    logits = low_rank(300, 100, 16)
    logits[250] = -np.inf
    for measure in (rank, kld):
        with pytest.raises(MatrixError, match=r"row 250 of .* holds -inf alone, as padding does: leave out such rows"):
            measure(logits, kind="logits")


class Given:
    """An array of another library: it has a shape and gives its numbers, and cannot be sliced."""

    def __init__(self, numbers: Matrix) -> None:
        self.numbers, self.shape = numbers, numbers.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Matrix:
        return self.numbers


def test_what_people_hand_in() -> None:
    logits, layer = low_rank(60, 40, 8), nn.Linear(16, 50)
    assert (
        rank(Given(logits), kind="logits").rank.low
        == rank(logits, kind="logits", device=torch.device("cpu")).rank.low
        == 9
    )
    hidden = np.random.default_rng(0).standard_normal((100, 16)).astype(np.float32)
    expected = rank(layer, hidden=hidden).rank
    for given in (pd.DataFrame(hidden), hidden.tolist(), [hidden[:50], torch.from_numpy(hidden[50:])]):
        assert rank(layer, hidden=given).rank == expected
    for refused, why in (
        (5, "not iterable"),
        (np.ma.masked_array(hidden), "a masked array"),
        (["a"], "blocks of such rows"),
    ):
        with pytest.raises(SourceError, match=why):
            rank(layer, hidden=refused)
    with pytest.raises(MatrixError, match="must hold real numbers, not complex128"):
        rank(torch.complex(torch.from_numpy(logits), torch.from_numpy(logits)).conj(), kind="logits")


@pytest.mark.parametrize("ids", [[1, 2, 40], [1, -2, 3]])
def test_ids_that_a_module_does_not_know(ids: list[int]) -> None:
    module = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 30))
    with pytest.raises(
        SourceError, match=rf"at batch 0 of the data, with ids from {min(ids)} to {max(ids)}: index out"
    ):
        rank(module, data=[[ids]])


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


def test_other_logarithms_are_named() -> None:
    log_probs = torch.from_numpy(low_rank(50, 30, 5)).log_softmax(-1)
    for given, remedy in (
        (log_probs / np.log(2), "base-2 logarithms: multiply by math.log\\(2\\)"),
        (log_probs / np.log(10), "base-10 logarithms: multiply by math.log\\(10\\)"),
        (-log_probs, "negative logarithms: multiply by -1"),
    ):
        for kind in ("log-probs", "logits"):
            with pytest.raises(MatrixError, match=remedy):
                rank(given, kind=kind)


def test_logits_that_resemble_logarithms_are_measured() -> None:
    """Natural logarithms, and logits of which one is 0 and all others are far below."""
    log_probs = torch.from_numpy(low_rank(50, 30, 5)).log_softmax(-1)
    peaked = log_probs - 20
    peaked[:, 3] = 0.0
    for given in (log_probs, peaked, peaked / np.log(10)):
        assert rank(given, kind="logits").to_dict()["contexts"] == len(given)


def test_an_index_in_a_data_frame_is_no_token() -> None:
    frame = pd.DataFrame(low_rank(50, 30, 5), columns=[f"t{number}" for number in range(30)])
    assert rank(frame, kind="logits").rank.value == 6
    with pytest.raises(SourceError, match="column 30, target, holds whole numbers and others do not, as an index"):
        rank(frame.assign(target=range(50)), kind="logits")


def test_a_transpose_is_named() -> None:
    log_probs = torch.from_numpy(low_rank(50, 30, 5)).log_softmax(-1)
    with pytest.raises(MatrixError, match="columns of array hold log-probabilities, not its rows: give its transpose"):
        rank(log_probs.T)


def test_probabilities_are_no_logits() -> None:
    probabilities = torch.from_numpy(low_rank(50, 30, 5)).softmax(-1)
    with pytest.raises(MatrixError, match="holds probabilities: use kind='probabilities'"):
        rank(probabilities, kind="logits")
    with pytest.raises(MatrixError, match="holds probabilities: use kind='probabilities'"):
        rank(lambda ids: probabilities[ids], data=[np.arange(50)[None]])


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


def test_a_target_of_probability_zero_is_named() -> None:
    layer, hidden = nn.Linear(8, 30), torch.randn(50, 8)
    with torch.no_grad():
        layer.bias[3] = -torch.inf  # type: ignore[index]
    targets = torch.full((50,), 4)
    targets[7] = 3
    sentence = "gives token 3, which follows context 7, probability 0: the loss is infinite"
    with pytest.raises(SourceError, match=sentence):
        perplexity(layer, hidden=hidden, targets=targets)
    with pytest.raises(SourceError, match=sentence):
        compare(layer, nn.Linear(8, 30), hidden=hidden, targets=targets)


def test_tensors_that_numpy_cannot_read() -> None:
    matrix = torch.randn(30, 20)
    for tensor in (matrix.to_sparse(), matrix.to("meta")):
        with pytest.raises(MatrixError, match=r"give a dense one, tensor\.to_dense\(\)"):
            rank(tensor, kind="logits")
    nested = torch.nested.nested_tensor([matrix[:10], matrix[10:]], layout=torch.jagged)
    for measure in (rank, kld, pairwise_kld, singular_values):
        with pytest.raises(MatrixError, match=r"is a nested tensor: join its rows by torch\.cat\(tensor\.unbind"):
            measure(nested)
    negative = torch.view_as_complex(torch.stack([matrix, -matrix], -1)).conj().imag
    assert np.array_equal(as_array(negative), matrix.numpy())
    with pytest.raises(SourceError, match="a dict cannot be measured: give its logits, with kind='logits'"):
        rank({"logits": matrix})


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
