"""``bottleneck bench spectrum``: streamed spectra against LAPACK on the whole matrix."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from ..core.machine import cores
from ..core.progress import SILENT, Progress
from ..measure import rank
from ..measure.dumping import dump
from ..spectrum import METHODS, RangeFinder, SpectrumMethod, SpectrumSettings, build, decompose
from .in_turn import Goal, Work, in_turn, report

ROWS = 1024
"""Rows of a block."""
PTB = (82_429, 10_000)
"""Contexts and tokens of Penn Treebank's test split."""
PTB_RANK = 402
"""Number of columns of [H, 1, −log Z] for a Softmax with d = 400 and a bias."""
NUMPY, TORCH, TSQR = "numpy float64 svd", "torch float32 svdvals", "tsqr float64"
GRAM, HALF = "gram float32", "gram float32, half the contexts"
SYRK, GEMM = "syrk rate", "gemm rate"
"""Cases at the given shape."""
WHOLE = "whole command"
WHOLE_NUMPY, WHOLE_TORCH = f"{NUMPY}, whole process", f"{TORCH}, whole process"
PROGRAMS = {
    WHOLE: ("-m", "softmax_bottleneck", "rank", "{path}", "--json", "-"),
    WHOLE_NUMPY: ("-c", "import numpy as np; np.linalg.svd(np.load('{path}').astype(float), compute_uv=False)"),
    WHOLE_TORCH: ("-c", "import numpy as np, torch; torch.linalg.svdvals(torch.from_numpy(np.load('{path}')))"),
}
"""Whole processes that measure a file of log-probabilities at the given shape: what Python is asked to run."""
PROCESSES = (1, 2, 4)
SHARED = [
    (name, *(f"{name}, processes of one thread: {count}" for count in PROCESSES)) for name in ("gram", "factored")
]
"""Cases at the given shape: the time of rows that processes share; those of more processes than cores are left out."""
FACTORED, STORE = "factored, PTB shape, d = 400", "gram float32, PTB shape, from a store"
"""Cases at that of Penn Treebank."""
RATIOS = (
    Goal("gram / numpy", GRAM, "<=", 0.30, NUMPY),
    Goal("gram / torch float32", GRAM, "<=", 0.65, TORCH),
    Goal("gram's streaming rate / syrk rate", SYRK, ">=", 0.80, GRAM, over_key="stream_seconds"),
    Goal("gram memory / float64 matrix", GRAM, "<=", 1.0, GRAM, "memory_bytes", "float64_bytes"),
    Goal("tsqr / numpy", TSQR, "<=", 1.0, NUMPY),
    Goal("streaming time, contexts doubled", GRAM, "<=", 2.2, HALF, "stream_seconds"),
    Goal("memory, contexts doubled", GRAM, "<=", 1.1, HALF, "memory_bytes"),
    Goal("whole command / numpy", WHOLE, "<=", 0.25, WHOLE_NUMPY),
    Goal("whole command / torch float32", WHOLE, "<=", 1.0, WHOLE_TORCH),
    *(
        Goal(f"{name}: efficiency of 2 processes", one, ">=", 0.8, two, "stream_seconds", unit=2.0)
        for name, one, two, *_ in SHARED
    ),
    Goal("inspection / decomposition in it", WHOLE, "<=", 0.15, WHOLE, "inspected_seconds", "decomposed_seconds"),
)
"""The project's goals for ratios, on two cores at the default shape."""
GOALS = (
    *RATIOS,
    Goal(f"{FACTORED}: seconds", FACTORED, "<=", 10.0),
    Goal(f"{STORE}: seconds", STORE, "<=", 240.0),
    Goal(f"{STORE}: GiB", STORE, "<=", 4.0, key="memory_bytes", unit=2**30),
)


def bench_spectrum(
    *, shape: tuple[int, int] = (20_000, 5_000), store: bool = False, device: str = "cpu", progress: Progress = SILENT
) -> dict[str, Any]:
    """Measure the time of each method on one full-rank random matrix, and the machine's matrix product rates.

    Cases run in turn, each in its own process. The methods of this package compute the raw and the row-centred
    spectrum, NumPy and torch only the raw one. Then `bottleneck rank` of a file is measured beside both, as whole
    processes, and the rows that several processes share (see `shared`).

    The result has ``rates`` (float64 GFLOP/s) and ``ratios`` too. Memory is that above the input.

    Args:
        shape: (T, M).
        store: whether to rank a stored matrix of Penn Treebank's size too, which takes minutes and 6.6 GB of disk.
        device: device of this package's methods; NumPy, torch and the product rates are measured on the CPU.
        progress: where to report.
    """
    T, M = shape
    cases = {
        NUMPY: partial(_matrix, name="numpy", rows=T, columns=M),
        TORCH: partial(_matrix, name="torch", rows=T, columns=M),
        GRAM: partial(_matrix, name="gram", rows=T, columns=M, device=device),
        HALF: partial(_matrix, name="gram", rows=T // 2, columns=M, device=device),
        SYRK: partial(_matrix, name="syrk", rows=T, columns=M),
        GEMM: partial(_matrix, name="gemm", rows=T, columns=M),
        TSQR: partial(_matrix, name="tsqr", rows=T, columns=M, device=device),
    }
    rows = in_turn(cases, runs=3, seconds=math.inf, warm_up=False, progress=progress)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log-probs.npy"
        _write_log_probs(path, shape)
        programs = {name: partial(_program, str(path), name=name) for name in PROGRAMS}
        rows |= in_turn(programs, runs=3, seconds=math.inf, warm_up=False, progress=progress)
    shared = {
        case: partial(_shared, name=name, processes=count, rows=T, columns=M)
        for name, *names in SHARED
        for count, case in zip(PROCESSES, names, strict=True)
        if count <= cores()
    }
    rows |= in_turn(shared, runs=3, seconds=math.inf, warm_up=False, progress=progress)
    factored = {FACTORED: partial(_factored, rows=PTB[0], columns=PTB[1], device=device)}
    rows |= in_turn(factored, runs=3, warm_up=False, progress=progress)
    if store:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "random.zarr"
            dump(_random_blocks(PTB), path, kind="matrix")
            rows |= in_turn({STORE: partial(_stored, path, device=device)}, runs=1, warm_up=False, progress=progress)
    return report(
        rows,
        GOALS,
        device=device,
        shape=[T, M],
        rates={"syrk": T * M**2 / rows[SYRK]["seconds"] / 1e9, "gemm": 2 * T * M**2 / rows[GEMM]["seconds"] / 1e9},
        ratios={goal.what: ratio for goal in RATIOS if not math.isnan(ratio := goal.measure(rows))},
    )


def _random_blocks(shape: tuple[int, int]) -> Iterator[NDArray[np.float32]]:
    """Yield normal random numbers in blocks of rows."""
    generator = np.random.default_rng(0)
    for start in range(0, shape[0], ROWS):
        rows = min(ROWS, shape[0] - start)
        yield generator.standard_normal((rows, shape[1]), dtype=np.float32)


def _write_log_probs(path: Path, shape: tuple[int, int]) -> None:
    """Write the log-softmax of `_random_blocks` in float32."""
    file = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    start = 0
    for logits in _random_blocks(shape):
        file[start : start + len(logits)] = torch.from_numpy(logits).double().log_softmax(1)
        start += len(logits)
    file.flush()


def _program(path: str, *, name: str) -> Work:
    """Return a function that runs one of `PROGRAMS`, and returns how `rank` spent its time."""
    program = [sys.executable, *(part.format(path=path) for part in PROGRAMS[name])]

    def work() -> dict[str, float]:
        printed = subprocess.run(program, check=True, capture_output=True, text=True).stdout
        return {f"{part}_seconds": each for part, each in json.loads(printed or "{}").get("spent", {}).items()}

    return work


def _shared(*, name: str, processes: int, rows: int, columns: int) -> Work:
    """Return a function that runs `shared` in so many processes of one thread each, and returns its seconds."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    program = [sys.executable, *launcher, "-m", "softmax_bottleneck.bench.shared", name, str(rows), str(columns)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def work() -> dict[str, float]:
        printed = subprocess.run(program, check=True, capture_output=True, text=True, env=environment).stdout
        return dict(json.loads(printed))

    return work


def _stored(path: Path, *, device: str) -> Work:
    def work() -> dict[str, Any]:
        values = rank(path, kind="matrix", method="gram", device=device).to_dict()
        return {key: values[key] for key in ("contexts", "vocab", "method", "rank", "certificate")}

    return work


def _factored(*, rows: int, columns: int, device: str) -> Work:
    random = np.random.default_rng(0)
    right, thin = (random.standard_normal((size, PTB_RANK)) for size in (columns, rows))
    return lambda: _streamed(build(SpectrumSettings(method="factored", device=device), right), thin)


def _matrix(*, name: str, rows: int, columns: int, device: str = "cpu") -> Work:
    """Make a random matrix, and return a function that computes its singular values, or a product with itself."""
    dtype = np.float64 if name in ("tsqr", "syrk", "gemm") else np.float32
    matrix: NDArray[Any] = np.random.default_rng(0).standard_normal((rows, columns), dtype=dtype)
    if name in METHODS:
        return lambda: _streamed(build(SpectrumSettings(method=name, device=device), columns), matrix)
    square = np.zeros((columns, columns) if name == "syrk" else 0, order="F")
    # For a matrix with itself NumPy calls syrk, which computes half of the product.
    other = matrix.copy() if name == "gemm" else matrix
    functions: dict[str, Callable[[], Any]] = {
        "numpy": lambda: np.linalg.svd(matrix.astype(np.float64), compute_uv=False)[0],
        "torch": lambda: torch.linalg.svdvals(torch.from_numpy(matrix))[0],
        "syrk": lambda: dsyrk(1.0, matrix.T, beta=1.0, c=square, lower=1, overwrite_c=1)[0, 0],
        "gemm": lambda: (matrix.T @ other)[0, 0],
    }
    return lambda: {"sigma_1" if name in ("numpy", "torch") else "entry": float(functions[name]())}


def _streamed(method: SpectrumMethod | RangeFinder, matrix: NDArray[Any]) -> dict[str, float]:
    """Measure block by block; return the seconds of streaming alone, σ_1, and the certificate."""
    started, stream = time.perf_counter(), 0.0

    def blocks() -> Iterator[NDArray[Any]]:
        nonlocal stream
        for start in range(0, len(matrix), ROWS):
            yield matrix[start : start + ROWS]
        stream = time.perf_counter() - started

    spectrum = decompose(blocks(), method)
    return {
        "stream_seconds": stream,
        "float64_bytes": 8.0 * matrix.size,
        "sigma_1": float(spectrum.values[0]),
        "certificate": spectrum.frobenius_relative_error,
    }
