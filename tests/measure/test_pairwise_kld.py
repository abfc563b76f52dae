"""Pairwise KL divergence against the double sum that defines it."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from softmax_bottleneck.errors import ConfigurationError, MatrixError
from softmax_bottleneck.measure.pairwise_kld import pairwise_kld

Matrix = NDArray[np.float64]


def log_probs(T: int, M: int, *, seed: int = 0, spread: float = 2.0) -> Matrix:
    logits = spread * np.random.default_rng(seed).standard_normal((T, M))
    return np.asarray(logits - np.log(np.exp(logits).sum(1, keepdims=True)))


def divergence(p: Matrix, q: Matrix) -> float:
    """Σ P log (P / Q) of two rows of logarithms, one term after another."""
    return math.fsum(math.exp(a) * (a - b) for a, b in zip(p, q, strict=True))


@given(
    seed=st.integers(0, 2**32 - 1),
    T=st.integers(1, 9),
    M=st.integers(1, 9),
    spread=st.sampled_from([1e-3, 1.0, 30.0]),
    rows=st.integers(1, 9),
)
@settings(max_examples=60, deadline=None)
def test_all_pairs(seed: int, T: int, M: int, spread: float, rows: int) -> None:
    matrix = log_probs(T, M, seed=seed, spread=spread)
    expected = math.fsum(divergence(p, q) for p in matrix for q in matrix) / T**2
    for form in (matrix, torch.from_numpy(matrix), lambda: (matrix[s : s + rows] for s in range(0, T, rows))):
        found = pairwise_kld(form)
        assert found.kld == pytest.approx(expected, rel=1e-12, abs=1e-13 * max(1, np.abs(matrix).max()))
        assert found.kld == float(found) >= 0
        assert (found.pairs, found.standard_error, found.contexts, found.vocab) == ("all", None, T, M)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rows(dtype: type[np.floating]) -> None:
    rows = np.tile(log_probs(1, 50), (40, 1)).astype(dtype)
    assert 0 <= pairwise_kld(rows).kld < 1e-14
    sampled = pairwise_kld(rows.tolist() if dtype is np.float64 else rows, pairs=50)
    assert (sampled.kld, sampled.standard_error) == (0.0, 0.0)
    assert sum(sampled.histogram.counts) == 50


@pytest.mark.parametrize(("rows_in_memory", "passes"), [(1 << 27, 1), (4000, 2)], ids=["one pass", "two passes"])
def test_drawn_pairs(monkeypatch: pytest.MonkeyPatch, rows_in_memory: int, passes: int) -> None:
    """A known shape saves a pass; the histogram counts the divergences."""
    matrix, pairs, read = log_probs(30, 8), 500, []
    monkeypatch.setattr("softmax_bottleneck.measure.pairwise_kld.ROWS_IN_MEMORY", rows_in_memory)

    def blocks() -> list[Matrix]:
        read.append(1)
        return np.array_split(matrix, 5)

    found = pairwise_kld(blocks, pairs=pairs, seed=3, shape=(30, 8))
    assert len(read) == passes
    assert found == pairwise_kld(blocks, pairs=pairs, seed=3)
    assert len(read) == 2 * passes + 1
    drawn = np.random.default_rng(3).integers(30, size=(pairs, 2))
    values = sorted(divergence(matrix[c], matrix[other]) for c, other in drawn)
    assert found.kld == pytest.approx(math.fsum(values) / pairs, rel=1e-12)
    variance = math.fsum((value - found.kld) ** 2 for value in values) / (pairs - 1)
    assert found.standard_error == pytest.approx(math.sqrt(variance / pairs), rel=1e-10)
    assert (found.pairs, found.contexts, found.vocab) == (pairs, 30, 8)
    edges, counts = found.histogram.edges, found.histogram.counts
    for count, (low, high) in zip(counts[:-1], itertools.pairwise(edges[:-1]), strict=True):
        assert count == sum(low <= value < high for value in values)
    assert (sum(counts), edges[0], values[0], edges[-1]) == (pairs, 0, 0, pytest.approx(values[-1]))
    assert found.to_dict()["histogram"] == {"edges": [*edges], "counts": [*counts]}


@pytest.mark.parametrize("pairs", ["all", 10])
@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (np.array([[np.log(0.5)] * 2, [np.nan, 0.0]]), "holds nan at row 1, column 0"),
        (np.array([[0.0, -np.inf]] * 2), "holds -inf at row 0, column 1"),
        (np.zeros((0, 4)), "the matrix is empty"),
        (np.exp(log_probs(4, 2)), r"row \d is not a row of .* sum is off by 1\.\d+, and 5.0e-01 is allowed at"),
        (np.full((4, 5), -1e4), r"row \d is not a row of log-probabilities: .* sum is off by 1e\+04"),
        (log_probs(4, 5) + 1e-3, "sum is off by 0.001, and 1.0e-10 is allowed at its precision"),
        ((log_probs(4, 5) + 1e-3).astype(np.float32), "sum is off by 0.001, and 6.1e-06 is allowed at its precision"),
    ],
)
def test_what_cannot_be_measured(matrix: Any, sentence: str, pairs: str | int) -> None:
    with pytest.raises(MatrixError, match=sentence):
        pairwise_kld(lambda: iter([matrix[:1], matrix[1:]] if len(matrix) > 1 else []), pairs=pairs)
    with pytest.raises(MatrixError, match=sentence):
        pairwise_kld(matrix, pairs=pairs)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": "matrix"}, "unknown kind 'matrix'; the rows are one of log-probs, logits"),
        *(({"pairs": pairs}, "pairs must be 'all' or a number of at least 2, not") for pairs in (1, "some", 2.5)),
    ],
)
def test_unknown_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        pairwise_kld(log_probs(4, 5), **options)


def rounded(matrix: Matrix, dtype: str) -> Matrix:
    """Return what a narrower type keeps of the numbers."""
    return np.asarray(torch.from_numpy(matrix).to(getattr(torch, dtype)).double().numpy())


def test_rows_whose_sums_are_off_are_normalized() -> None:
    """Rows after a log-partition of 100 was rounded to bfloat16: their probabilities sum to e^±0.4."""
    matrix = rounded(log_probs(30, 40) + np.linspace(-0.4, 0.4, 30)[:, None], "bfloat16")
    true = matrix - np.logaddexp.reduce(matrix, 1, keepdims=True)
    expected = math.fsum(divergence(p, q) for p in true for q in true) / 30**2
    found = pairwise_kld(matrix)
    assert found.kld == pytest.approx(expected, rel=1e-12)
    off = max(abs(math.log(math.fsum(map(math.exp, row)))) for row in matrix)
    assert found.largest_log_sum == pytest.approx(off, rel=1e-12)
    assert 0.35 < off < 0.5


@pytest.mark.parametrize("pairs", ["all", 40])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shift", [None, 0.0, 60.0], ids=["log-probs", "logits", "shifted logits"])
@pytest.mark.parametrize("spread", [0.05, 1.0, 5.0])
def test_roundoff_bounds_what_rounding_does(spread: float, shift: float | None, dtype: str, pairs: str | int) -> None:
    """The worst of all roundings moves each entry by half an eps of it, along the gradient (autograd in float64)."""
    eps = torch.finfo(getattr(torch, dtype)).eps
    exact = log_probs(25, 30, spread=spread) + (shift or 0.0)
    kind = "log-probs" if shift is None else "logits"
    drawn = None if pairs == "all" else torch.from_numpy(np.random.default_rng(0).integers(25, size=(40, 2)))
    found = pairwise_kld(rounded(exact, dtype), pairs=pairs, kind=kind)
    assert (found.eps.value, found.eps.dtype) == (eps, dtype)
    assert (found.largest_log_sum is None) == (kind == "logits")
    entries = torch.from_numpy(exact).requires_grad_()
    log_p = torch.log_softmax(entries, 1)
    of, to = (torch.cartesian_prod(*[torch.arange(25)] * 2) if drawn is None else drawn).T
    true = (log_p[of].exp() * (log_p[of] - log_p[to])).sum(1).mean()
    (slopes,) = torch.autograd.grad(true, entries)
    worst = float((slopes * entries.detach()).abs().sum()) * eps / 2
    assert worst <= 1.001 * found.roundoff + eps**2
    assert abs(found.kld - float(true.detach())) <= found.roundoff
    if spread >= 1:
        assert found.roundoff < 4 * worst
    assert pairwise_kld(exact, pairs=pairs, kind=kind, eps=dtype).roundoff == pytest.approx(found.roundoff, rel=0.1)


@pytest.mark.parametrize("pairs", ["all", 40])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0])
def test_roundoff_of_float64(spread: float, pairs: str | int) -> None:
    """Against extended precision: what the sums add is in the bound, too."""
    matrix = log_probs(50, 40, spread=spread)
    found = pairwise_kld(matrix, pairs=pairs)
    rows = matrix.astype(np.longdouble)
    rows -= np.log(np.exp(rows).sum(1, keepdims=True))
    drawn = np.random.default_rng(0).integers(50, size=(40, 2)) if pairs == 40 else np.argwhere(np.ones((50, 50)))
    p, q = rows[drawn[:, 0]], rows[drawn[:, 1]]
    assert abs(found.kld - (np.exp(p) * (p - q)).sum(1).mean()) <= found.roundoff < 1e-11
    assert found.eps.dtype == "float64"


def test_the_line_for_people() -> None:
    matrix = rounded(log_probs(30, 40) + 0.4, "bfloat16")
    found = pairwise_kld(matrix)
    start = rf"{found.kld:.4f} ± 0\.\d+ \(roundoff of bfloat16\) nats \(all pairs\); "
    assert re.fullmatch(start + r"the rows were normalized, \|log Σ P\| was at most 0\.4\d? nats", found.text())
    drawn = str(pairwise_kld(matrix, pairs=25, eps=0.01))
    assert re.search(r" ± 0\.\d{4} \(standard error\) ± 0\.\d+ \(roundoff of eps 0\.01\) nats \(25 drawn", drawn)
    assert pairwise_kld(log_probs(30, 40)).text().endswith("(roundoff of float64) nats (all pairs)")
