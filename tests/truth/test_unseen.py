"""What a matrix no longer shows, or shows only in its columns, single entries or tails, is not certain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from pipelines import assert_open, low_rank
from softmax_bottleneck import kld, rank
from softmax_bottleneck.errors import BottleneckError, StoreError
from softmax_bottleneck.measure.dumping import dump
from softmax_bottleneck.sources.kinds import labelled
from softmax_bottleneck.spectrum import Precision, SavedSpectrum, Spectrum, load_spectra, write_spectra

Matrix = NDArray[np.float64]


def log_softmax(logits: Any) -> Matrix:
    return torch.log_softmax(torch.as_tensor(logits), 1).numpy()


class Reader:
    """Blocks of a matrix in one buffer, again and again."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix

    def __iter__(self) -> Iterator[Matrix]:
        buffer = np.empty((5, self.matrix.shape[1]))
        for start in range(0, len(self.matrix), 5):
            buffer[:] = self.matrix[start : start + 5]
            yield buffer


def test_blocks_may_share_their_memory() -> None:
    matrix = low_rank(600, 80, 6)
    found = rank(Reader(matrix), kind="logits").rank
    assert (found.value, found.determinate) == (7, True)
    assert kld(Reader(matrix), kind="logits").kld == pytest.approx(kld(matrix, kind="logits").kld, rel=1e-12)


@pytest.mark.parametrize("given", ["frame", "parquet", "array"])
def test_the_least_precise_column_counts(given: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(low_rank(600, 80, 10)).astype(dict.fromkeys(range(40), "float32"))
    source: Any = frame if given == "frame" else frame.to_numpy()
    if given == "parquet":
        source = str(tmp_path / "m.parquet")
        frame.rename(columns=str).to_parquet(source)
    report = rank(source, kind="logits")
    assert report.eps.dtype == "float32"
    assert (report.rank.value, report.rank_centered.value) == (11, 10)
    assert report.rank.determinate


@pytest.mark.parametrize("shape", [(300, 100), (500, 300), (200, 1000)])
@pytest.mark.parametrize("made", ["softmax", "temperature"])
def test_a_float32_rounding_that_few_numbers_cannot_show(shape: tuple[int, int], made: str) -> None:
    logits = 3 * low_rank(*shape, 40, decay=6)
    if made == "softmax":
        p = torch.softmax(torch.tensor(logits).float(), 1).double().numpy()
        log_probs = np.log(p / p.sum(1, keepdims=True))
    else:
        log_probs = log_softmax(torch.tensor(logits).float().double() / 1.3)
    report = rank(log_probs)
    assert_open(report, 41, 40)
    assert report.rank.doubt
    assert report.rank_centered.doubt


def test_a_full_rank_that_steps_as_large_as_the_entries_could_have_made() -> None:
    """Their noise would leave no direction to show it, so only a given precision settles the rank."""
    log_probs = log_softmax(np.random.default_rng(0).standard_normal((500, 100)))
    report = rank(log_probs)
    assert_open(report, 100, 99)
    assert rank(log_probs, eps="float64").rank.determinate


@pytest.mark.parametrize(("scale", "least"), [(6.0, 20), (11 / 3, 4)])
def test_logarithms_of_subnormal_probabilities_are_a_doubt(scale: float, least: int) -> None:
    logits = scale * low_rank(600, 150, 9)
    with np.errstate(divide="ignore"):
        logs = torch.softmax(torch.tensor(logits).float(), 1).log().numpy()
    logs = logs[np.isfinite(logs).all(1)]
    assert (logs < -96).sum() > least
    found = rank(logs).rank
    assert (found.low, found.high, found.determinate) == (1, 150, False)
    assert "smallest probabilities of float32" in found.doubt
    careful = log_softmax(torch.tensor(logits).float())
    assert (careful < -96).sum() > least
    assert rank(careful).rank.doubt == ""


@pytest.mark.parametrize("columns", [64, 100, 128])
@pytest.mark.parametrize("scaled", ["unit", "layer-norm"])
def test_narrow_matrices_of_rounded_rows(columns: int, scaled: str) -> None:
    rounded = torch.tensor(low_rank(1000, columns, 20, decay=2)).bfloat16().float()
    unit = rounded / rounded.norm(dim=1, keepdim=True)
    report = rank(unit if scaled == "unit" else torch.nn.functional.layer_norm(rounded, (columns,)), kind="matrix")
    assert_open(report, 20, 20)


@pytest.mark.parametrize("decimals", [2, 3, 4])
def test_decimals_of_few_contexts(decimals: int) -> None:
    """No direction is left to show their rounding: the numbers do, and no advice says that they are exact."""
    exact = log_softmax(low_rank(40, 2000, 60))
    rounded = exact.round(decimals)
    report = rank(rounded)
    assert report.rank.low < report.rank.high == 40
    assert "the numbers have few decimals" in report.rank.doubt
    assert "eps" not in str(report.next)
    assert not rank(rounded, eps="float64").rank.determinate
    assert abs(kld(rounded).kld - kld(exact).kld) <= kld(rounded).roundoff < 10**-decimals * 10


def test_fewer_rows_than_directions_are_not_called_rounded() -> None:
    """The end of a spectrum that falls slowly looks like noise: 768 directions in 300 rows."""
    rng = np.random.default_rng(1)
    falling = rng.standard_normal((300, 768)) / np.arange(1.0, 769.0) @ rng.standard_normal((768, 1024))
    few = rng.standard_normal((300, 20)) @ rng.standard_normal((20, 1024))
    for matrix, step, is_certain in ((falling, 0.0, False), (few, 1.0, True)):
        rounded = torch.log_softmax(torch.from_numpy(np.round(matrix / step) * step if step else matrix).float(), 1)
        report, divergence = rank(rounded), kld(rounded)
        assert report.rank.low <= 21 < report.rank.high == 300
        sentences = report.rank.doubt, str(divergence)
        assert all(("more directions than so few contexts show" in each) is not is_certain for each in sentences)
        assert Precision.read(report.eps.to_dict()) == report.eps


def test_narrow_matrices_of_full_rank() -> None:
    found = rank(np.random.default_rng(0).standard_normal((1000, 64)), kind="matrix").rank
    assert (found.value, found.determinate) == (64, True)


@pytest.mark.parametrize("columns", [300, 20_000])
def test_sums_one_by_one_are_careful_enough(columns: int) -> None:
    logits = 3 * low_rank(100, columns, 10)
    assert rank(logits - np.logaddexp.reduce(logits, 1, keepdims=True)).rank.value == 11
    assert kld(logits - np.logaddexp.reduce(logits, 1, keepdims=True)).kld > 0


@pytest.mark.parametrize("mask", [-1000.0, -100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masks_of_other_tokens_in_every_row(mask: float, dtype: torch.dtype) -> None:
    logits = low_rank(600, 150, 9)
    logits[np.arange(600), np.random.default_rng(1).integers(0, 150, 600)] = mask
    found = rank(log_softmax(torch.tensor(logits, dtype=dtype))).rank
    assert (found.low, found.high, found.determinate) == (1, 150, False)
    assert "one token of 600 rows lies 50 nats or more below all others" in found.doubt


def test_one_unlikely_token_is_no_mask() -> None:
    logits = low_rank(600, 150, 9)
    logits[:, 3] -= 100
    assert rank(log_softmax(logits)).rank.doubt == ""


def test_decimals_under_a_bias_are_a_rounding() -> None:
    rounded = np.round(low_rank(600, 250, 7, decay=1), 2) + np.random.default_rng(1).standard_normal(250)
    for log_probs in (log_softmax(rounded), log_softmax(torch.tensor(rounded).float())):
        assert_open(rank(log_probs), 9, 8)


def test_a_divergence_of_constant_rows_names_what_was_rounded_away() -> None:
    logits = torch.tensor(100 + 0.01 * low_rank(30, 500, 10)).bfloat16().float()
    found = kld(torch.log_softmax(logits, 1))
    assert found.kld <= found.roundoff < 1e-5
    sentence = "the numbers of a row differ by their roundoff at most: the KL of the unrounded numbers cannot be told"
    assert sentence in str(found)
    assert "rounded" not in str(kld(log_softmax(low_rank(50, 40, 9))))


def test_a_store_stays_what_it_was_dumped_as(tmp_path: Path) -> None:
    store = tmp_path / "m.zarr"
    dump(low_rank(60, 40, 9), store, kind="matrix")
    for source in (str(store), store.as_uri()):
        assert rank(source, kind="matrix").rank.value == rank(source).rank.value == 9
        with pytest.raises(StoreError, match=r"records what it holds \(matrix\), so kind='logits' does not apply"):
            rank(source, kind="logits")


def test_a_table_shows_both_intervals() -> None:
    report = rank(torch.tensor(low_rank(300, 100, 10)).bfloat16(), kind="logits")
    shown = report.numbers()
    assert not shown["rank_determinate"]
    ends = (shown["rank_centered_low"], shown["rank_centered_high"])
    assert ends == (report.rank_centered.low, report.rank_centered.high)
    assert shown["rank_centered_determinate"] is report.rank_centered.determinate


@pytest.mark.parametrize(
    "options", [{"width": -1}, {"width": 5.5}, {"width": "3"}, {"contexts": 5.0}, {"contexts": "5"}]
)
def test_numbers_that_are_not_whole_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BottleneckError, match=r"must be (a whole number|at least 1)"):
        rank(low_rank(60, 40, 9), kind="matrix", **options)


def test_a_spectrum_is_loaded_by_its_name(tmp_path: Path) -> None:
    spectrum = Spectrum(np.array([2.0, 1.0]), np.array([1.0, 0.0]), (3, 2), "dense", 0.0)
    write_spectra(tmp_path / "s.npz", [SavedSpectrum(spectrum, {})])
    assert load_spectra(str(tmp_path / "s.npz"))[0].spectrum.values.tolist() == [2.0, 1.0]


def test_an_equals_sign_in_a_files_name_is_no_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("lr=0.1.npz", logits=low_rank(60, 40, 9))
    assert list(labelled(["lr=0.1.npz:logits"]).values()) == ["lr=0.1.npz:logits"]
    assert labelled(["lr=0.2.npz:logits"]) == {"lr": "0.2.npz:logits"}
