"""``bottleneck bench gpu``: a GPU checked against the CPU, and the benchmarks on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import heads
from ..core.files import make_folder, write_json
from ..core.progress import SILENT, Progress
from ..errors import ConfigurationError
from ..spectrum import METHODS, SpectrumSettings, matrix_spectrum
from .heads import bench_heads
from .in_turn import Goal, report
from .spectrum import bench_spectrum
from .training import bench_training

STAGES = ("device", "heads", "spectrum", "training")
CONTEXTS, SIZE, VOCAB = 300, 48, 1000
"""N, d and M of the heads that are checked."""
SHAPE = 600, 150
"""T and M of the matrix that is decomposed, whose singular values are 10⁻⁶ to 1."""
SETTINGS: dict[str, dict[str, Any]] = {
    "moc": {"components": 3},
    "mos": {"components": 3},
    "lms-plif": {"knots": 1000},
    "mos-plif": {"components": 3, "knots": 1000},
    "doc": {"components": (2, 1), "layer_sizes": (SIZE // 2, SIZE // 2)},
    "mixtape": {"components": 4},
}
SLACK = 10.0
"""Largest error of the device, as a multiple of the CPU's float32 error; sums are computed in another order."""
EXACT = 1e-12
"""Largest error of σ / σ_1, in float64, of methods that state no resolution."""


def bench_gpu(
    out: Path, *, device: str, only: Collection[str] = STAGES, shrink: int = 1, progress: Progress = SILENT
) -> None:
    """Write ``bench/STAGE.json`` under ``out`` for every stage that has none.

    ``only`` are names in `STAGES`; `ConfigurationError` for another one.
    """
    if unknown := sorted({*only} - {*STAGES}):
        raise ConfigurationError(f"unknown stage {unknown[0]!r}; the stages are {', '.join(STAGES)}")
    shape = max(2, 20_000 // shrink), max(2, 5_000 // shrink)
    stages: dict[str, Callable[[], dict[str, Any]]] = {
        "device": lambda: check_device(device),
        "heads": lambda: bench_heads(device=device, shrink=shrink, progress=progress),
        "spectrum": lambda: bench_spectrum(shape=shape, device=device, progress=progress),
        "training": lambda: bench_training(device=device, shrink=shrink, progress=progress),
    }
    make_folder(out / "bench")
    for stage, work in stages.items():
        report = out / "bench" / f"{stage}.json"
        if stage in only and not report.exists():
            progress.line(f"{stage}: measuring")
            write_json(report, work())


def check_device(device: str) -> dict[str, Any]:
    """Compare a device with float64 on the CPU.

    Args:
        device: a CUDA device, or ``"cpu"`` to test this function.

    Returns:
        The result of `in_turn.report`. A head's case has the largest relative error of its loss or of a gradient in
        float32, on the ``device`` and on the ``cpu`` (at least float32's eps); that of a spectrum method the largest
        ``error`` of a singular value, over σ_1. The goals: the device's errors are within `SLACK` of the CPU's, and
        those of spectra within the method's resolution.
    """
    heads_errors = {name: _head_errors(name, device) for name in heads.REGISTRY}
    spectra = {name: {"error": error} for name, error in _spectrum_errors(device)}
    goals = [
        *(Goal(f"{name}: error / CPU's", name, "<=", SLACK, name, "device", "cpu") for name in heads_errors),
        *(Goal(f"{name}: error / σ_1", name, "<=", max(METHODS[name].resolution, EXACT), key="error")
          for name in spectra),
    ]  # fmt: skip
    return report(heads_errors | spectra, goals, device=device)


def _head_errors(name: str, device: str) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = heads.build(name, hidden_size=SIZE, vocab_size=VOCAB, **SETTINGS.get(name, {}))
    hidden = torch.randn(CONTEXTS, SIZE, generator=generator)
    targets = torch.randint(VOCAB, (CONTEXTS,), generator=generator)
    weights = {key: value.clone() for key, value in head.state_dict().items()}

    def loss_and_gradients(where: str, dtype: torch.dtype) -> list[Tensor]:
        head.load_state_dict(weights)
        copied = head.to(where, dtype).eval()
        inputs = nn.Parameter(hidden.to(where, dtype))
        loss = copied.nll(inputs, targets.to(where))
        variables = [inputs, *(parameter for parameter in copied.parameters() if parameter.requires_grad)]
        return [piece.detach().double().cpu() for piece in (loss, *torch.autograd.grad(loss, variables))]

    truth = loss_and_gradients("cpu", torch.float64)

    def error(where: str) -> float:
        """Return the largest relative error of a tensor, by its norm."""
        pairs = zip(loss_and_gradients(where, torch.float32), truth, strict=True)
        return max(float((one - true).norm() / true.norm()) for one, true in pairs if true.any())

    return {"cpu": max(error("cpu"), torch.finfo(torch.float32).eps), "device": error(device)}


def _spectrum_errors(device: str) -> Iterator[tuple[str, float]]:
    generator = np.random.default_rng(0)
    T, M = SHAPE
    left, right = (np.linalg.qr(generator.standard_normal((size, M)))[0] for size in (T, M))
    values = np.logspace(0, -6, M)
    matrix = (left * values) @ right.T
    for method in ("gram", "tsqr", "dense"):
        measured = matrix_spectrum(matrix, SpectrumSettings(method=method, device=device)).values
        yield method, float(np.abs(measured - values).max())
