"""Random pipelines: a matrix of known rank, roundings and changes on its way to the user, and a way to measure it.

The exact rank comes from algebra alone: every step that is linear acts on thin factors L (T × r) and R (M × r) of the
exact matrix in float64, beside the rounded numbers themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from softmax_bottleneck import RankReport
from softmax_bottleneck.spectrum import RankEstimate

Matrix = NDArray[np.float64]
RELATIVE = 1e-11
"""Singular values of the balanced factors below this, relative to the largest, are zeros of the algebra."""


def low_rank(rows: int, columns: int, d: int, *, decay: float = 0.0, seed: int = 0) -> Matrix:
    """Return a product of rank d whose left factor has columns of sizes that fall by ``decay`` powers of ten."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, d)) * np.logspace(0, -decay, d) @ rng.standard_normal((d, columns))


def assert_true(found: RankEstimate, exact: int, what: object = "", visible: int | None = None) -> None:
    """Check an estimate; directions that the type of the numbers cannot hold, beyond ``visible``, may be missed."""
    least = exact if visible is None else visible
    assert not (found.determinate and found.at_least), what
    assert found.low <= exact, (str(found), exact, what)
    assert found.at_least or least <= found.high, (str(found), exact, what)
    assert not found.determinate or least <= found.value <= exact, (str(found), exact, what)
    assert not found.at_least or found.value == found.low, (str(found), exact, what)
    assert str(found).startswith("≥") == found.at_least


def assert_open(report: RankReport, raw: int, centered: int) -> None:
    """Check that both ranks are open, and that their intervals hold the truth."""
    for found, exact in ((report.rank, raw), (report.rank_centered, centered)):
        assert not found.determinate, str(found)
        assert found.low <= exact <= found.high, (str(found), exact)


@dataclass
class Pipeline:
    """A matrix as its user has it, and the factors of what it would be without any rounding."""

    numbers: Matrix
    left: Matrix
    right: Matrix
    steps: list[str] = field(default_factory=list)
    rounded: bool = False

    def exact(self) -> Matrix:
        return self.left @ self.right.T

    def add(self, left: Matrix, right: Matrix, numbers: Matrix) -> None:
        """Add left rightᵀ to the exact matrix, and ``numbers`` to the rounded one."""
        self.left, self.right = np.c_[self.left, left], np.c_[self.right, right]
        self.numbers = self.numbers + numbers

    def ranks(self) -> tuple[int, int]:
        """Return the exact rank, and that of the row-centred matrix."""
        return _rank(self.left, self.right), _rank(self.left, _without_mean(self.right))

    def visible(self, eps: float) -> tuple[int, int]:
        """Return those ranks without the directions that drown in the roundoff of the type that holds the numbers."""
        T, M = self.numbers.shape
        roundoff = eps / math.sqrt(12) * np.sqrt(np.mean(self.numbers**2)) * (math.sqrt(T) + math.sqrt(M))
        both = (self.exact(), self.left @ _without_mean(self.right).T)
        raw, centered = (int((np.linalg.svd(each, compute_uv=False) > roundoff).sum()) for each in both)
        return raw, centered


def _rank(left: Matrix, right: Matrix) -> int:
    """Return the rank of left rightᵀ, with columns scaled to one size: the algebra's."""
    bases = []
    size_of_product = np.linalg.norm(left, axis=0) * np.linalg.norm(right, axis=0)
    left, right, size_of_product = (each[..., size_of_product > 0] for each in (left, right, size_of_product))
    if not size_of_product.size:
        return 0
    for factor in (left, right):
        norms = np.linalg.norm(factor, axis=0)
        scaled = factor / np.where(norms > 0, norms, 1)
        _, values, V = np.linalg.svd(scaled, full_matrices=False)
        size = int((values > RELATIVE * values[0]).sum()) if values[0] else 0
        bases.append(V[:size] * np.sqrt(size_of_product))
    middle = bases[0] @ bases[1].T
    values = np.linalg.svd(middle, compute_uv=False) if middle.size else np.zeros(1)
    return int((values > RELATIVE * values[0]).sum()) if values.size and values[0] else 0


def _start(rng: np.random.Generator, largest: tuple[int, int]) -> Pipeline:
    limits = zip((60, 30), largest, strict=True)
    rows, columns = (int(np.exp(rng.uniform(np.log(low), np.log(high)))) for low, high in limits)
    d = int(rng.integers(1, max(2, min(rows, columns) // 3)))
    left, right = rng.standard_normal((rows, d)), rng.standard_normal((columns, d))
    decay = rng.choice(["flat", "flat", "power law", "exponential"])
    if decay == "power law":
        left /= np.arange(1, d + 1)
    elif decay == "exponential":
        left *= np.logspace(0, -rng.uniform(1, 4), d)
    left *= rng.uniform(0.5, 4) / np.sqrt((left**2).sum(1).mean())
    return Pipeline(left @ right.T, left, right, [f"{rows}×{columns} d={d} {decay}"])


def _to(dtype: torch.dtype) -> Callable[[Matrix], Matrix]:
    return lambda x: torch.from_numpy(x).to(dtype).double().numpy()


def _grid(x: Matrix, axis: int | None, levels: int = 127) -> Matrix:
    step = np.abs(x).max(axis, keepdims=True) / levels
    return np.rint(x / step) * step


def _digits(x: Matrix, digits: int) -> Matrix:
    powers = 10.0 ** np.floor(np.log10(np.maximum(np.abs(x), 1e-300)))
    return np.round(x / powers, digits - 1) * powers


ROUNDINGS: dict[str, Callable[[Matrix], Matrix]] = {
    "bfloat16": _to(torch.bfloat16),
    "float16": _to(torch.float16),
    "float32": _to(torch.float32),
    "float8": _to(torch.float8_e4m3fn),
    "int8": lambda x: _grid(x, None),
    "int8 a row": lambda x: _grid(x, 1),
    "int8 a column": lambda x: _grid(x, 0),
    "one decimal": lambda x: np.round(x, 1),
    "three decimals": lambda x: np.round(x, 3),
    "six decimals": lambda x: np.round(x, 6),
    "four digits": lambda x: _digits(x, 4),
}


def _bias(it: Pipeline, rng: np.random.Generator) -> None:
    bias = rng.standard_normal((len(it.right), 1)) * rng.choice([0.1, 1.0, 10.0])
    it.add(np.ones((len(it.left), 1)), bias, bias.T)


def _offset(it: Pipeline, rng: np.random.Generator) -> None:
    by = float(rng.choice([-150.0, 30.0, 150.0, 3000.0]))
    it.add(np.full((len(it.left), 1), by), np.ones((len(it.right), 1)), np.float64(by))


def _row_shift(it: Pipeline, rng: np.random.Generator) -> None:
    shift = rng.standard_normal((len(it.left), 1)) * 10
    it.add(shift, np.ones((len(it.right), 1)), shift)


def _temperature(it: Pipeline, rng: np.random.Generator) -> None:
    by = 1 / rng.uniform(0.5, 2)
    it.left, it.numbers = it.left * by, it.numbers * by


def _row_scale(it: Pipeline, rng: np.random.Generator) -> None:
    scale = np.exp(rng.standard_normal((len(it.left), 1)) * 0.5)
    it.left, it.numbers = it.left * scale, it.numbers * scale


def _column_scale(it: Pipeline, rng: np.random.Generator) -> None:
    scale = np.exp(rng.standard_normal((len(it.right), 1)) * 0.5)
    it.right, it.numbers = it.right * scale, it.numbers * scale.T


def _without_mean(factor: Matrix) -> Matrix:
    """Return the factor with the mean of each column subtracted; what is roundoff alone then is zero."""
    centered = factor - factor.mean(0)
    zero = np.linalg.norm(centered, axis=0) <= RELATIVE * np.linalg.norm(factor, axis=0)
    return np.where(zero, 0.0, centered)


def _center_rows(it: Pipeline, rng: np.random.Generator) -> None:
    it.right = _without_mean(it.right)
    it.numbers = it.numbers - it.numbers.mean(1, keepdims=True)


def _center_columns(it: Pipeline, rng: np.random.Generator) -> None:
    it.left = _without_mean(it.left)
    it.numbers = it.numbers - it.numbers.mean(0)


def _z_scores(it: Pipeline, rng: np.random.Generator) -> None:
    _center_columns(it, rng)
    scale = 1 / it.exact().std(0)
    it.right = it.right * scale[:, None]
    it.numbers = it.numbers / it.numbers.std(0)


def _layer_norm(it: Pipeline, rng: np.random.Generator) -> None:
    _center_rows(it, rng)
    it.left = it.left / it.exact().std(1, keepdims=True)
    it.numbers = it.numbers / it.numbers.std(1, keepdims=True)


CHANGES = {
    "bias": _bias,
    "offset": _offset,
    "row shift": _row_shift,
    "temperature": _temperature,
    "row scale": _row_scale,
    "column scale": _column_scale,
    "row-centred": _center_rows,
    "column-centred": _center_columns,
    "z-scores": _z_scores,
    "layer norm": _layer_norm,
}


def _log_softmax(it: Pipeline, dtype: torch.dtype) -> None:
    exact = it.exact()
    log_partition = torch.from_numpy(exact).logsumexp(1, keepdim=True).numpy()
    it.left, it.right = np.c_[it.left, -log_partition], np.c_[it.right, np.ones(len(it.right))]
    it.numbers = torch.from_numpy(it.numbers).to(dtype).log_softmax(1).double().numpy()


@dataclass
class Case:
    """What is handed to `rank`, and the ranks that its numbers would have without any rounding."""

    matrix: Any
    rank: int
    centered: int
    options: dict[str, Any]
    visible: tuple[int, int]
    """Raw and row-centred rank without the directions that the type that holds the numbers cannot hold."""
    steps: str
    clean: bool
    """Whether nothing was rounded but to the type that holds the numbers."""


def draw(seed: int, largest: tuple[int, int] = (1200, 500)) -> Case:
    """Return the pipeline of a seed; where float32 rounds to zero or a column is constant, it holds what is left."""
    with np.errstate(all="ignore"):
        return _draw(np.random.default_rng(seed), largest)


def _draw(rng: np.random.Generator, largest: tuple[int, int]) -> Case:
    it = _start(rng, largest)
    clean = True
    for _ in range(rng.integers(0, 2)):
        _change(it, rng)
    if rng.random() < 0.65:
        clean = not _round(it, rng)
    for _ in range(rng.integers(0, 3)):
        _change(it, rng)
    kind = str(rng.choice(["log-probs", "logits", "matrix"]))
    dtype = rng.choice(["float32", "float64"])
    if kind == "log-probs":
        _log_softmax(it, getattr(torch, dtype))
        if rng.random() < 0.1:
            it.numbers, clean = np.log(np.exp(it.numbers).astype(np.float32)).astype(np.float64), False
            it.steps.append("log of float32 p")
    if kind != "log-probs" and rng.random() < 0.15:
        clean = not _round(it, rng) and clean
    if kind == "matrix" and (it.numbers == np.rint(it.numbers)).all():  # they are taken for exact counts
        _temperature(it, rng)
    matrix: Any = it.numbers.astype(dtype)
    if kind == "logits":
        _log_softmax(it, torch.float64)
    raw, centered = it.ranks()
    seen = it.visible(float(np.finfo(dtype).eps))
    visible = min(raw, seen[0]), min(centered, seen[1])
    method = str(rng.choice(["auto", "auto", "dense", "gram", "tsqr", "sketch"]))
    options: dict[str, Any] = {"kind": kind, "method": method}
    if method == "sketch":
        options["width"] = int(rng.integers(8, 2 * len(it.right)))
    if method == "gram" and (dtype == "float64" or sum(it.numbers.shape) < 1000):  # it resolves no such tolerance
        options["method"] = "auto"
    it.steps += [kind, str(dtype), str(options["method"])]
    return Case(matrix, raw, centered, options, visible, " | ".join(it.steps), clean)


def _change(it: Pipeline, rng: np.random.Generator) -> None:
    name = str(rng.choice(list(CHANGES)))
    CHANGES[name](it, rng)
    it.steps.append(name)


def _round(it: Pipeline, rng: np.random.Generator) -> bool:
    name = str(rng.choice(list(ROUNDINGS)))
    before, it.numbers = it.numbers, ROUNDINGS[name](it.numbers)
    errors = it.numbers - before
    largest = np.abs(errors).max()
    coarse = largest > 0.2 * np.abs(before).std() or largest > before.std(0).min()
    if coarse or not np.isfinite(it.numbers).all() or _are_alike(errors):
        it.numbers = before  # a rounding to almost nothing is not a pipeline that people have
        return False
    it.steps.append(name)
    return True


def _are_alike(errors: Matrix) -> bool:
    """Return whether errors are of low rank themselves, as those of rows that are multiples of each other are."""
    values = np.linalg.svd(errors, compute_uv=False)
    return bool(values[0] > 0 and values[min(12, len(values) - 1)] < 0.1 * values[0])
