"""Matrices in files and in memory: what is read, what is checked, and the sentence for what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from softmax_bottleneck import rank
from softmax_bottleneck.errors import MatrixError, SourceError
from softmax_bottleneck.sources import MatrixSource, open_source

from .conftest import rows_of

Matrix = NDArray[Any]
Make = Callable[..., NDArray[np.float64]]


@pytest.fixture
def npy(tmp_path: Path) -> Callable[[Matrix], Path]:
    """Write an array to ``m.npy``."""

    def write(matrix: Matrix) -> Path:
        np.save(tmp_path / "m.npy", matrix)
        return tmp_path / "m.npy"

    return write


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f8", ">f8"])
def test_npy_files(log_probs: Make, npy: Callable[[Matrix], Path], dtype: str, order: Any) -> None:
    matrix = log_probs(23, 6).astype(dtype, order=order)
    source = open_source(npy(matrix))
    assert source.dtype == ("float64" if dtype.endswith("8") else "float32")
    assert source.precision.dtype == {"2": "float16", "4": "float32", "8": "float64"}[dtype[-1]]
    assert source.precision.assumed
    for rows in (None, 1, 5, 23):
        np.testing.assert_array_equal(rows_of(source, rows), matrix)
    assert (source.targets, source.embedding_size, source.factors(), source.bound.raw) == (None,) * 4


@pytest.mark.parametrize("dtype", ["i1", "<i4", ">i8", "?"])
def test_integers_are_a_matrix_of_float64(npy: Callable[[Matrix], Path], dtype: str) -> None:
    matrix = np.random.default_rng(0).integers(0, 2, (9, 5)).astype(dtype)
    source = open_source(npy(matrix), kind="matrix")
    np.testing.assert_array_equal(rows_of(source, 4), matrix.astype(np.float64))
    assert (source.dtype, source.precision.dtype) == ("float64", "float64")
    assert int(rank(source).rank) == np.linalg.matrix_rank(matrix.astype(np.float64))


def test_forms_in_memory(log_probs: Make) -> None:
    matrix = log_probs(10, 4)
    forms: list[Any] = [
        matrix,
        torch.tensor(matrix, requires_grad=True),
        pd.DataFrame(matrix),
        [matrix[:3], matrix[3:]],
        (torch.from_numpy(block) for block in np.array_split(matrix, 4)),
    ]
    for form in forms:
        np.testing.assert_array_equal(rows_of(open_source(form), 3), matrix)
    assert open_source(matrix).description["path"] == "array"
    assert open_source([matrix]).description["path"] == "blocks"
    assert open_source(given := open_source(matrix)) is given


def test_logits_are_normalized(log_probs: Make) -> None:
    matrix = log_probs(12, 5)
    offsets = np.linspace(-300, 300, 12)[:, None]
    np.testing.assert_allclose(rows_of(open_source(matrix + offsets, kind="logits"), 5), matrix, rtol=0, atol=1e-12)
    huge = np.array([[1e4, 0.0, -1e4], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(
        rows_of(open_source(huge, kind="logits")), [[0, -1e4, -2e4], [-np.log(3)] * 3], rtol=1e-15
    )
    # Summed in float16, thousands of probabilities would lose their last ones.
    logits = np.random.default_rng(0).normal(0, 3, (3, 5000)).astype(np.float16)
    wide = logits.astype(np.float64)
    expected = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    np.testing.assert_allclose(rows_of(open_source(logits, kind="logits")), expected, rtol=0, atol=1e-5)
    assert open_source(logits, kind="logits").precision.dtype == "float16"


@pytest.mark.parametrize("kind", ["log-probs", "logits", "matrix"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_first_bad_number_is_named(log_probs: Make, npy: Callable[[Matrix], Path], bad: float, kind: str) -> None:
    matrix = log_probs(20, 6)
    matrix[13, 4] = matrix[13, 5] = matrix[14, 0] = bad
    for form in (npy(matrix), matrix, np.array_split(matrix, 7), torch.from_numpy(matrix)):
        with pytest.raises(MatrixError, match=f"holds {bad} at row 13, column 4: "):
            rank(form, kind=kind)
    source = MatrixSource(matrix, kind=kind)
    with pytest.raises(MatrixError, match=rf"array holds {bad} at row 13, column 4: only finite numbers"):
        list(source.blocks(source.ranges(3)))


@pytest.mark.parametrize(
    "change",
    [lambda a: a + 1e-9, lambda a: np.exp(a), lambda a: a - 900, lambda a: a + 900, lambda a: a * 2],
)
def test_rows_that_are_no_log_probabilities(log_probs: Make, change: Callable[[Matrix], Matrix]) -> None:
    matrix = log_probs(20, 6)
    matrix[9], matrix[15] = change(matrix[9]), change(matrix[15])
    opened = open_source(matrix)
    for rows in (None, 4):
        with pytest.raises(
            MatrixError,
            match=r"row 9 of array is not a row of log-probabilities: .*; use kind=.logits. .* kind=",
        ):
            list(opened.blocks(opened.ranges(rows)))
    np.testing.assert_array_equal(rows_of(open_source(matrix, kind="matrix")), matrix)
    assert [block.start for block in open_source(matrix).blocks([range(4, 6)])] == [4]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_rounded_log_probabilities_pass(dtype: str) -> None:
    """Rounding moves log Σ P by at most eps / 2 · log M, and a softmax in that type by a few times that."""
    logits = 4 * torch.from_numpy(np.random.default_rng(1).standard_normal((40, 3000)))
    for matrix in (
        torch.log_softmax(logits, 1).to(getattr(torch, dtype)),
        torch.log_softmax(logits.to(getattr(torch, dtype)), 1),
    ):
        assert rows_of(open_source(matrix)).shape == (40, 3000)


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (np.ones(4), r"must have two dimensions \(contexts × tokens\), not shape \(4,\)"),
        (np.float64(3), r"must have two dimensions .*, not shape \(\)"),
        (np.ones((2, 2, 2)), r"must have two dimensions .*, not shape \(2, 2, 2\)"),
        (np.ones((0, 4)), r"is empty: its shape is \(0, 4\)"),
        (np.ones((4, 0)), r"is empty: its shape is \(4, 0\)"),
        (np.ones((2, 2), complex), "must hold real numbers, not complex128"),
        (np.array([["a", "b"]]), "must hold real numbers, not <U1"),
        (np.array([[None, {}]], dtype=object), "must hold real numbers, not object|Python objects"),
    ],
)
def test_what_is_no_matrix(npy: Callable[[Matrix], Path], matrix: Matrix, sentence: str) -> None:
    for source in (matrix, npy(matrix)):
        with pytest.raises((MatrixError, SourceError), match=sentence):
            open_source(source)


def test_what_is_no_source() -> None:
    with pytest.raises(MatrixError, match="the matrix is empty: there are no rows"):
        open_source(iter([]))
    with pytest.raises(MatrixError, match="the block at row 2 has 5 columns, the ones before it 4"):
        open_source(iter([np.zeros((2, 4)), np.zeros((2, 5))]))
    with pytest.raises(SourceError, match="unknown kind 'probs'; a matrix is one of log-probs, logits, prob"):
        open_source(np.zeros((2, 2)), kind="probs")
    with pytest.raises(SourceError, match="a value of type int cannot be measured; give a path, a Run, a"):
        rank(5)


def test_the_first_contexts_of_a_matrix(log_probs: Make, npy: Callable[[Matrix], Path]) -> None:
    matrix = log_probs()
    for source in (matrix, npy(matrix), [matrix], open_source(matrix)):
        opened = open_source(source, contexts=5)
        assert opened.shape == (5, matrix.shape[1])
        for rows in (None, 1, 4):
            np.testing.assert_array_equal(rows_of(opened, rows), matrix[:5])
        assert opened.identity != open_source(source, contexts=6).identity
    for contexts in (0, len(matrix) + 1):
        with pytest.raises(SourceError, match=f"contexts must be between 1 and .*, not {contexts}"):
            open_source(matrix, contexts=contexts)


def test_identity_is_the_content(log_probs: Make, npy: Callable[[Matrix], Path]) -> None:
    matrix = log_probs()
    same = [matrix, torch.from_numpy(matrix), npy(matrix.astype(">f8"))]
    assert len({tuple(sorted(open_source(form).identity.items())) for form in same}) == 1
    changed = matrix.copy()
    changed[-1, -1] = np.nextafter(changed[-1, -1], 0)
    assert open_source(changed).identity != open_source(matrix).identity
    assert open_source(matrix, kind="matrix").identity != open_source(matrix).identity


class Counted(np.ndarray):
    """An array that counts the rows that are read from it."""

    read = 0

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and self.ndim == 2:
            Counted.read += len(range(*key.indices(len(self))))
        return super().__getitem__(key)


def long(rows: int = 6000, columns: int = 40, d: int = 9) -> Matrix:
    rng = np.random.default_rng(0)
    return (rng.standard_normal((rows, d)) @ rng.standard_normal((d, columns))).astype(np.float32)


@pytest.mark.parametrize("kind", ["log-probs", "logits", "matrix"])
def test_a_long_matrix_is_read_once_beside_a_sample(kind: str) -> None:
    logits = long()
    matrix = torch.from_numpy(logits).log_softmax(1).numpy() if kind == "log-probs" else logits
    source = open_source(matrix.view(Counted), kind=kind)
    Counted.read = 0
    report = rank(source)
    assert Counted.read < 6000 + 2048 + 100
    assert report.rank.value == (9 if kind == "matrix" else 10)
    assert report.rank.determinate
    assert report.spent.keys() == {"read", "inspected", "decomposed"}
    assert 0 < sum(report.spent.values()) <= report.seconds + 0.001
    assert f"(inspected {report.spent['inspected']:,.1f} s, read" in report.details()


def test_what_a_sample_does_not_hold_is_seen_in_the_pass() -> None:
    rng, logits = np.random.default_rng(1), long()
    twice = np.concatenate([logits, logits[::-1][:1000]])
    assert rank(twice, kind="logits").eps.distinct == (6000, 40)
    masked = logits.copy()
    masked[:, 3] = -1e5
    with pytest.raises(MatrixError, match="only finite numbers"):
        rank(masked, kind="logits")
    row = int(np.setdiff1d(np.arange(6000), np.concatenate([np.arange(64) + s for s in range(0, 5937, 191)]))[-1])
    masked[row, 3] = 0.0
    report = rank(masked, kind="logits")
    assert not report.rank.determinate
    assert "5,999 entries lie 9,000 nats or more below their row's largest" in report.details()
    heavy = rng.standard_normal((6000, 40)).astype(np.float32)
    heavy[row] *= 1e9
    assert f"the largest in row {row:,}" in rank(heavy, kind="matrix").details()
    huge = rng.standard_normal((6000, 40))
    huge[row] *= 1e200
    assert rank(huge, kind="matrix").rank.sigma_1 > 1e200
    bad = torch.from_numpy(logits).log_softmax(1).numpy()
    bad[row] -= 0.1
    with pytest.raises(MatrixError, match=f"row {row} of array is not a row of log-probabilities"):
        rank(bad)


def test_gram_refuses_a_tolerance_it_cannot_resolve_before_it_reads(log_probs: Make) -> None:
    matrix = log_probs(200, 60)
    with pytest.raises(MatrixError, match=r"the gram method resolves σ/σ_1 down to 1\.2e-07, .*use method=.tsqr."):
        rank(matrix, method="gram")
    source = open_source(matrix.view(Counted))
    Counted.read = 0
    with pytest.raises(MatrixError, match="the gram method resolves"):
        rank(source, method="gram", eps="float64")
    assert Counted.read == 0
    assert rank(matrix, method="gram", eps=1e-5).spectrum.method == "gram"
