"""``bottleneck bench gpu``: all benchmarks and a family of presets on a GPU within some hours, resumable.

    bottleneck bench gpu --hours 0.4 --archive ptb.zip --out gpu

In order: `check_device`; the benchmarks of heads, spectra and training steps; then the models of a family of presets,
all for as many epochs as fit into the remaining hours, and their ranks. Finished stages are not repeated, and a run
continues from its last saved state. Hours count only work, over all calls.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import corpora, heads
from ..core.files import make_folder, write_json
from ..core.machine import machine
from ..core.progress import SILENT, Progress
from ..core.version import __version__
from ..errors import ConfigurationError
from ..spectrum import REGISTRY, singular_values
from ..training import RunConfig, override, training_cost
from . import demo
from .heads import bench_heads
from .in_turn import Goal, check_goals
from .spectrum import bench_spectrum
from .training import bench_training, shrunk

STAGES = ("device", "heads", "spectrum", "training", "models")
FOR_RANKS = 0.15
"""Share of the hours after the benchmarks that is reserved for ranks, divergences and test perplexities."""
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
    out: Path,
    study: demo.Study,
    *,
    hours: float,
    device: str,
    only: Collection[str] = STAGES,
    shrink: int = 1,
    archive: Path | None = None,
    progress: Progress = SILENT,
) -> str:
    """Run the stages that are not finished, and return the models' table.

    Writes ``bench/STAGE.json``, ``plan.json``, ``seconds.json`` and the files of `demo.run` under ``out``.

    Args:
        out: a folder, created if it does not exist.
        study: presets to train.
        hours: total hours of work, over all calls.
        device: device of all work.
        only: names in ``STAGES``.
        shrink: divisor of the benchmarks' sizes and the models' layers, for a dry run; the goals hold for 1.
        archive: archive of Penn Treebank, if it is not in the cache yet.
        progress: progress display.

    Raises:
        ConfigurationError: for an unknown stage or family, or a wrong setting.
        BottleneckError: as for the benchmarks, `fit` and `rank`.
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
            with _counted(out, stage):
                write_json(report, work())
    if "models" not in only:
        return ""
    if archive is not None:
        corpora.get("ptb", sources=[archive])
    runs = [(preset, config if shrink == 1 else shrunk(config, shrink)) for preset, config in study.configurations()]
    if not (out / "plan.json").exists():
        _plan(out, hours, {preset.model: config for preset, config in runs}, device, progress)
    epochs = json.loads((out / "plan.json").read_text(encoding="utf-8"))["epochs"]
    runs = [(preset, override(config, [f"training.epochs={epochs}"])) for preset, config in runs]
    with _counted(out, "models"):
        return demo.run(out, study, configurations=runs, measure_again=False, device=device, progress=progress)


def _plan(out: Path, hours: float, configs: dict[str, RunConfig], device: str, progress: Progress) -> None:
    """Write the number of epochs that fit into the hours, from the time of a few steps, to ``plan.json``."""
    seconds = {}
    with _counted(out, "plan"):
        for name, config in configs.items():
            seconds[name] = training_cost(config, device=device).seconds_per_epoch
            if device.startswith("cuda"):
                torch.cuda.empty_cache()
            progress.line(f"{name}: {seconds[name]:.1f} s an epoch")
    left = (3600 * hours - sum(_seconds(out).values())) * (1 - FOR_RANKS)
    epochs = max(1, int(left / sum(seconds.values())))
    plan = {"epochs": epochs, "hours": hours, "epoch_seconds": seconds, "machine": machine(device)}
    write_json(out / "plan.json", plan)


def _seconds(out: Path) -> dict[str, float]:
    """Return the seconds of work of each stage, over all calls."""
    file = out / "seconds.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


@contextmanager
def _counted(out: Path, what: str) -> Iterator[None]:
    """Add the seconds of the block to ``seconds.json``, also after an interruption."""
    started = time.monotonic()
    try:
        yield
    finally:
        seconds = _seconds(out)
        write_json(out / "seconds.json", {**seconds, what: seconds.get(what, 0.0) + time.monotonic() - started})


def check_device(device: str) -> dict[str, Any]:
    """Compare a device with float64 on the CPU.

    Args:
        device: a CUDA device, or ``"cpu"`` to test this function.

    Returns:
        ``machine``; ``heads``: for each the largest relative error of the loss or of a gradient in float32, on the
        device and on the CPU; ``spectra``: for each method the largest error of a singular value, over σ_1;
        ``goals``: whether the device's errors are within `SLACK` of the CPU's, and those of spectra within the method's
        resolution.
    """
    errors = {name: _head_errors(name, device) for name in heads.REGISTRY}
    spectra = dict(_spectrum_errors(device))
    eps = torch.finfo(torch.float32).eps
    goals = {
        **{Goal(f"{name}: error / CPU's", name, "<=", SLACK): one["device"] / max(one["cpu"], eps)
           for name, one in errors.items()},
        **{Goal(f"{name}: error / σ_1", name, "<=", max(REGISTRY[name].resolution, EXACT)): error
           for name, error in spectra.items()},
    }  # fmt: skip
    return {
        "machine": machine(device),
        "device": device,
        "heads": errors,
        "spectra": spectra,
        "goals": check_goals(goals),
        "version": __version__,
    }


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

    return {"cpu": error("cpu"), "device": error(device)}


def _spectrum_errors(device: str) -> Iterator[tuple[str, float]]:
    generator = np.random.default_rng(0)
    T, M = SHAPE
    left, right = (np.linalg.qr(generator.standard_normal((size, M)))[0] for size in (T, M))
    values = np.logspace(0, -6, M)
    matrix = (left * values) @ right.T
    for method in ("gram", "tsqr", "dense"):
        measured = singular_values(matrix, method=method, device=device).values
        yield method, float(np.abs(measured - values).max())
