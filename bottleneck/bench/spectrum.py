"""``bottleneck bench spectrum``: streamed spectra against LAPACK on the whole matrix."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from scipy.linalg.blas import dsyrk

from ..core.machine import machine
from ..core.progress import SILENT, Progress
from ..core.version import __version__
from ..measure import dump, rank
from ..sources import UNKNOWN, Block, Source
from ..spectrum import REGISTRY, Factored, Options, Precision, SpectrumMethod, measure, on, precision
from .in_turn import Goal, Measured, check_goals, in_turn

RUNS = 3
"""Runs of each case; the median counts."""
ROWS = 1024
"""Rows of a block."""
PTB = (82_429, 10_000)
"""Contexts and tokens of Penn Treebank's test split."""
PTB_RANK = 402
"""Number of columns of [H, 1, −log Z] for a Softmax with d = 400 and a bias."""
FACTORED, STORE = "factored, PTB shape, d = 400", "gram float32, PTB shape, from a store"
"""Cases at that shape."""
GOALS = (
    ("gram / numpy", "<=", 0.30),
    ("gram / torch float32", "<=", 0.65),
    ("gram's streaming rate / syrk rate", ">=", 0.80),
    ("gram memory / float64 matrix", "<=", 1.0),
    ("tsqr / numpy", "<=", 1.0),
    ("streaming time, contexts doubled", "<=", 2.2),
    ("memory, contexts doubled", "<=", 1.1),
)
"""The project's goals for the ratios, on two cores at the default shape."""


def bench_spectrum(
    *, shape: tuple[int, int] = (20_000, 5_000), store: bool = False, device: str = "cpu", progress: Progress = SILENT
) -> dict[str, Any]:
    """Measure the time of each method on one full-rank random matrix, and the machine's matrix product rates.

    Cases run in turn, each in its own process. The methods of this package compute the raw and the row-centred
    spectrum, NumPy and torch only the raw one.

    Args:
        shape: (T, M).
        store: whether to rank a stored matrix of Penn Treebank's size too, which takes minutes and 3.3 GB of disk.
        device: device of this package's methods; NumPy, torch and the product rates are measured on the CPU.
        progress: progress display.

    Returns:
        ``machine``, ``shape``, ``cases`` (median seconds, bytes above the input), ``rates`` (float64 GFLOP/s),
        ``ratios``, and ``asked``, the project's goals: see `check_goals`.
    """
    T, M = shape
    wanted = {
        "numpy float64 svd": partial(_case, "numpy", T, M),
        "torch float32 svdvals": partial(_case, "torch", T, M),
        "gram float32": partial(_case, "gram", T, M, device),
        "gram float32, half the contexts": partial(_case, "gram", T // 2, M, device),
        "syrk rate": partial(_case, "syrk", T, M),
        "gemm rate": partial(_case, "gemm", T, M),
        "tsqr float64": partial(_case, "tsqr", T, M, device),
    }
    cases = in_turn(wanted, runs=RUNS, seconds=math.inf, warm_up=False, progress=progress)
    factored = {FACTORED: partial(_case, "factored", *PTB, device)}
    cases |= in_turn(factored, runs=RUNS, warm_up=False, progress=progress)
    if store:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "random.zarr"
            dump(_Random(PTB), path)
            stored = {STORE: partial(_from_store, path, device)}
            cases |= in_turn(stored, runs=1, warm_up=False, progress=progress)
    seconds = {name: case.seconds for name, case in cases.items()}
    gram, half = cases["gram float32"], cases["gram float32, half the contexts"]
    stream = _stream(gram)
    ratios = {
        "gram / numpy": gram.seconds / seconds["numpy float64 svd"],
        "gram / torch float32": gram.seconds / seconds["torch float32 svdvals"],
        "gram's streaming rate / syrk rate": seconds["syrk rate"] / stream,
        "gram memory / float64 matrix": gram.memory_bytes / (8 * T * M),
        "tsqr / numpy": seconds["tsqr float64"] / seconds["numpy float64 svd"],
        "streaming time, contexts doubled": stream / _stream(half),
        "memory, contexts doubled": gram.memory_bytes / half.memory_bytes,
    }
    return {
        "machine": machine(device),
        "shape": [T, M],
        "cases": {name: case.to_dict() for name, case in cases.items()},
        "rates": {"syrk": T * M**2 / seconds["syrk rate"] / 1e9, "gemm": 2 * T * M**2 / seconds["gemm rate"] / 1e9},
        "ratios": ratios,
        "asked": check_goals(_goals(ratios, cases)),
        "version": __version__,
    }


def _goals(ratios: Mapping[str, float], cases: Mapping[str, Measured]) -> list[Goal]:
    """Return the goals of the ratios, and of the seconds and bytes of the cases at Penn Treebank's shape."""
    goals: list[Goal] = [(name, ratios[name], sign, bound) for name, sign, bound in GOALS]
    goals.append((f"{FACTORED}: seconds", cases[FACTORED].seconds, "<=", 10.0))
    if STORE in cases:
        goals.append((f"{STORE}: seconds", cases[STORE].seconds, "<=", 240.0))
        goals.append((f"{STORE}: GiB", cases[STORE].memory_bytes / 2**30, "<=", 4.0))
    return goals


def _stream(case: Measured) -> float:
    """Return the median run's seconds of streaming alone."""
    return statistics.median(result["stream_seconds"] for result in case.results)


@final
class _Random(Source):
    """Normal random numbers in float32, made block by block."""

    bound, embedding_size, targets, dtype = UNKNOWN, None, None, "float32"

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.description = {"path": "random", "kind": "matrix", "head": None, "corpus": None, "split": None}
        self.identity = {"random": "0"}

    @property
    def precision(self) -> Precision:
        return precision("float32")

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        for rows in self.ranges() if ranges is None else ranges:
            shape = (len(rows), self.shape[1])
            yield Block(rows.start, np.random.default_rng(rows.start).standard_normal(shape, dtype=np.float32))


def _from_store(path: Path, device: str) -> Callable[[], Any]:
    def work() -> dict[str, Any]:
        report = rank(path, kind="matrix", method="gram", device=device).to_dict()
        return {key: report[key] for key in ("contexts", "vocab", "method", "rank", "certificate")}

    return work


def _case(name: str, T: int, M: int, device: str = "cpu") -> Callable[[], Any]:
    """Make a case's input, and return a function that runs it."""
    random = np.random.default_rng(0)
    if name == "factored":
        right = random.standard_normal((M, PTB_RANK))
        thin = random.standard_normal((T, PTB_RANK))
        return lambda: _streamed(Factored(right, arithmetic=on(device)), thin)
    matrix = random.standard_normal((T, M), dtype=np.float64 if name in ("tsqr", "syrk", "gemm") else np.float32)
    if name == "numpy":
        return lambda: float(np.linalg.svd(matrix.astype(np.float64), compute_uv=False)[0])
    if name == "torch":
        import torch

        return lambda: float(torch.linalg.svdvals(torch.from_numpy(matrix))[0])
    if name == "syrk":
        square = np.zeros((M, M), order="F")
        return lambda: float(dsyrk(1.0, matrix.T, beta=1.0, c=square, lower=1, overwrite_c=1)[0, 0])
    if name == "gemm":
        other = matrix.copy()  # for a matrix with itself NumPy calls syrk, which computes half of the product
        return lambda: float((matrix.T @ other)[0, 0])
    return lambda: _streamed(REGISTRY[name].build(M, Options(arithmetic=on(device))), matrix)


def _streamed(method: SpectrumMethod, matrix: Any) -> dict[str, float]:
    """Measure block by block; return the seconds of streaming and of the decomposition."""
    started = time.perf_counter()
    stream = 0.0

    def blocks() -> Any:
        nonlocal stream
        for start in range(0, len(matrix), ROWS):
            yield matrix[start : start + ROWS]
        stream = time.perf_counter() - started

    spectrum = measure(blocks(), method)
    return {
        "stream_seconds": stream,
        "sigma_1": float(spectrum.values[0]),
        "certificate": spectrum.frobenius_relative_error,
    }
