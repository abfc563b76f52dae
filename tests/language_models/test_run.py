"""Runs as sources, against their backbone and their head, which have tests of their own."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from softmax_bottleneck import corpora, rank
from softmax_bottleneck.errors import ConfigurationError, CorpusError, RunError, SourceError
from softmax_bottleneck.language_models import checkpoint
from softmax_bottleneck.sources import open_source

from ..sources.conftest import rows_of


@pytest.mark.parametrize("head", ["softmax", "mos"])
def test_log_probabilities_are_those_of_the_model(runs: dict[str, Path], corpus_folder: Path, head: str) -> None:
    """In blocks of any size, of some rows and of the first contexts alone."""
    ids = corpora.load(corpus_folder).split("test")
    model = checkpoint.load(runs[head]).model.double()
    with torch.no_grad():
        expected = model.head.log_prob(model.hidden(torch.from_numpy(ids[:-1, None]))[0][:, 0]).numpy()
    double, single, few = (
        open_source(runs[head], dtype=dtype, contexts=contexts)
        for dtype, contexts in (("float64", None), ("float32", None), ("float32", 33))
    )
    assert double.shape == single.shape == expected.shape == (419, 40)
    np.testing.assert_allclose(rows_of(double), expected, rtol=1e-11, atol=1e-12)
    for rows in (None, 1, 50, 418):
        np.testing.assert_allclose(rows_of(single, rows), expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(rows_of(few), expected[:33], rtol=2e-5, atol=2e-5)
    wanted = list(single.blocks([range(40, 80), range(400, 419)]))
    assert [(block.start, len(block.log_probs)) for block in wanted] == [(40, 40), (400, 19)]
    np.testing.assert_allclose(wanted[1].log_probs, expected[400:], rtol=2e-5, atol=2e-5)
    assert double.targets.tolist() == ids[1:].tolist()
    assert (few.shape, len(few.targets)) == ((33, 40), 33)
    with pytest.raises(SourceError, match=r"between 1 and 419, the contexts of .*, not 420"):
        open_source(runs[head], contexts=420)


def test_splits_and_other_texts(runs: dict[str, Path], tmp_path: Path, corpus_folder: Path) -> None:
    assert open_source(runs["moc"], split="valid").shape == (79, 40)
    with pytest.raises(CorpusError, match="no split 'dev'"):
        open_source(runs["moc"], split="dev")
    other = shutil.copytree(corpus_folder, tmp_path / "other")
    (other / "test.txt").write_text("w1 w2 w3\n")
    source = open_source(runs["moc"], data=str(other))
    assert source.shape == (3, 40)
    assert source.description["corpus"] == str(other)


def test_a_split_of_one_token(train: Callable[..., Path], corpus_folder: Path, tmp_path: Path) -> None:
    vocabulary = corpora.load(corpus_folder).vocabulary
    one = corpora.Corpus("one", vocabulary, {"test": np.array([3])}, "hash")
    run = train("softmax", tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "read_data", lambda *_, **__: one)
        with pytest.raises(SourceError, match="the test split of one has no context: it needs at least two tokens"):
            open_source(run, data="one")


def test_a_corpus_that_changed_since(train: Callable[..., Path], corpus_folder: Path, tmp_path: Path) -> None:
    text = shutil.copytree(corpus_folder, tmp_path / "text")
    run = train("softmax", tmp_path / "run", corpus=text)
    assert open_source(run).shape == (419, 40)
    (text / "test.txt").write_text("w1 w2\n")
    with pytest.raises(RunError, match=r"is not the one .*run was trained on \(its text has changed\).*data"):
        open_source(run)
    assert open_source(run, data=str(text)).shape == (2, 40)


def test_size_bound_and_precision(runs: dict[str, Path], corpus_folder: Path) -> None:
    source = open_source(runs["mos"], split="valid")
    assert (source.embedding_size, source.bound.raw, source.bound.centered) == (5, None, None)
    assert (source.precision.dtype, source.precision.assumed) == ("float32", False)
    assert open_source(runs["mos"], dtype="float64").precision.dtype == "float64"
    with pytest.raises(ConfigurationError, match="unknown dtype 'float16'; a run is evaluated in float32 or float64"):
        open_source(runs["mos"], dtype="float16")


def test_sources_of_one_run_do_not_disturb_each_other(runs: dict[str, Path]) -> None:
    run = checkpoint.load(runs["softmax"])
    sources = [open_source(run, dtype=dtype) for dtype in ("float32", "float64")]
    assert [rows_of(source).dtype.name for source in sources] == ["float32", "float64"]
    assert run.model.head.weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("head", "bias", "dtype"),
    [("softmax", True, "float32"), ("softmax", False, "float64"), ("moc", True, "float64"), ("moc", False, "float32")],
)
def test_factors_and_bound(train: Callable[..., Path], tmp_path: Path, head: str, bias: bool, dtype: str) -> None:
    """A Softmax and a MoC lie exactly at their bound, by every method, raw and row-centred."""
    source = open_source(train(head, tmp_path / "run", bias=bias, tie=False), dtype=dtype)
    assert (source.bound.raw, source.bound.centered) == ((7, 6) if bias else (6, 5))
    factors = source.factors()
    left = np.concatenate(list(factors.left(source.ranges())))
    assert left.shape == (419, 7 if bias else 6)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(left @ factors.right[:].T, rows_of(source), rtol=0, atol=64 * eps)
    # Float64 is beyond gram.
    for method in ("auto", "factored", "dense", "gram") if dtype == "float32" else ("auto", "factored", "dense"):
        report = rank(source, method=method)
        assert report.spectrum.method == ("factored" if method == "auto" else method)
        assert (report.rank.value, report.rank_centered.value) == (source.bound.raw, source.bound.centered)
        assert report.rank.determinate
        # By LAPACK in float64 the roundoff of the raw entries comes within the margin of the centred σ_1's tolerance.
        assert report.rank_centered.determinate or (dtype, method) == ("float64", "dense")
        assert report.bound == {"raw": source.bound.raw, "centered": source.bound.centered, "why": source.bound.why}
        assert report.embedding_size == 5


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"does not hold a run: it has no config\.json; give a folder that"):
        open_source(tmp_path)
    (tmp_path / "config.json").write_text('{"name": "mine"}')
    with pytest.raises(SourceError, match=r"config\.json was written neither by this tool nor by transformers"):
        open_source(tmp_path)


def test_autocast_does_not_reach_the_measurement(runs: dict[str, Path]) -> None:
    source = open_source(runs["mos"])
    expected = rows_of(source)
    with torch.autocast("cpu", torch.bfloat16):
        np.testing.assert_array_equal(rows_of(source), expected)
    assert math.isclose(float(np.exp(expected[0], dtype=np.float64).sum()), 1, rel_tol=1e-5)


def test_the_precision_found_is_recorded(runs: dict[str, Path]) -> None:
    def found() -> dict[str, object]:
        return dict(rank(runs["softmax"]).to_dict()["certificate"]["precision_found"])

    plain = found()
    assert plain["autocast"] is False
    with torch.autocast("cpu", torch.bfloat16):
        assert found() == {**plain, "autocast": True}
    before, torch.backends.mkldnn.matmul.fp32_precision = torch.backends.mkldnn.matmul.fp32_precision, "bf16"
    try:
        assert found() == {**plain, "mkldnn.matmul": "bf16"}
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before
    assert found() == plain
