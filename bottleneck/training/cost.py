"""What training takes, from a few steps that are made and thrown away."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from .. import corpora
from ..core.devices import ask, forked_random, resolve_device
from ..core.machine import duration, peak_memory_bytes
from ..core.parallel import ALONE
from ..core.progress import SILENT, Progress, reporting
from ..language_models.model import build
from ..results.base import Result
from ..results.quantity import ANSWER, TABLE, Quantity
from .config import RunConfig
from .epochs import Epochs
from .evaluate import mean_nll, text_of
from .loop import Loop
from .optimizer import copies_of

STEPS = 10
"""Largest number of steps that are timed; one more is made first."""
SECONDS = 10.0
"""Time after which no further step is timed."""
VALIDATED = 4
"""Largest number of batches of the validation text that are evaluated."""


@final
@dataclass(frozen=True)
class TrainingCost(Result, kind="training-cost"):
    """An estimate of what a run takes on this machine: numbers without a picture."""

    parameters: int
    """Number of weights, tied ones counted once."""
    device: str
    epochs: int
    steps_per_epoch: int
    """Mean number of updates in an epoch."""
    measured_steps: int
    """Number of steps that were timed."""
    seconds_per_step: float
    """Median of the timed steps."""
    seconds_per_epoch: float
    """Time of an epoch with its validations."""
    seconds: float
    """Time of all epochs; a run that stops early takes less."""
    memory_bytes: int | None
    """Largest memory so far: of this process on a CPU, of PyTorch's tensors on a GPU; ``None`` if that is unknown."""

    def quantities(self) -> Iterator[Quantity]:
        """Yield the size, the memory and the times."""
        memory = "unknown" if self.memory_bytes is None else f"{self.memory_bytes / 2**30:.2f} GiB at most"
        step = f"{self.seconds_per_step:.3g} s, median of {self.measured_steps} steps on {self.device}"
        epoch = f"{duration(self.seconds_per_epoch)}, {self.steps_per_epoch:,} steps and the validations"
        shown = ANSWER | TABLE
        yield Quantity("parameters", self.parameters, "parameters", shown)
        yield Quantity("memory_bytes", self.memory_bytes, "memory", shown, f"{memory}, measured on {self.device}")
        yield Quantity("seconds_per_step", self.seconds_per_step, "step", shown, step)
        yield Quantity("seconds_per_epoch", self.seconds_per_epoch, "epoch", shown, epoch)
        yield Quantity("seconds", self.seconds, "training", shown, f"{duration(self.seconds)}, {self.epochs} epochs")


def training_cost(config: RunConfig, *, device: str = "auto", progress: Progress | bool = False) -> TrainingCost:
    """Make a few steps of a run with random weights, and estimate what all of it takes; nothing is saved.

    Args:
        config: configuration of the run; an ``initial`` run is not read.
        device: device to train on, as for `resolve_device`.
        progress: where to report.

    Raises:
        CorpusError: the corpus is not there.
        TrainingError: the corpus is too short, the loss is not finite, or memory runs out.
    """
    corpus, device = corpora.load(config.corpus), resolve_device(device)
    ask(device, "reset_peak_memory_stats", device)
    with tempfile.TemporaryDirectory() as empty, forked_random(device):
        torch.manual_seed(config.seed)
        copies = copies_of(config, device)
        model = build(config.model, vocab_size=len(corpus.vocabulary), copies=copies).to(device)
        data = Epochs(corpus, config.training, seed=config.seed, lines=model.backbone.context_lines)
        loop = Loop(config, Path(empty), corpus, data, model, processes=ALONE, progress=SILENT)
        with reporting(progress).bar("timing", STEPS + 1, "steps") as bar:
            times = loop.timed_steps(STEPS, SECONDS, bar)
        started = time.perf_counter()
        text = text_of(model, corpus, "valid")
        part = text.first(int(text.edges[: VALIDATED + 1][-1]))
        mean_nll(model, part)
        validation = (time.perf_counter() - started) * (len(text.edges) - 1) / (len(part.edges) - 1)
    settings = config.training
    steps, a_step = round(loop.steps / settings.epochs), sorted(times)[len(times) // 2]
    an_epoch = steps * a_step + settings.validations * validation
    return TrainingCost(
        parameters=model.parameter_count(),
        device=device,
        epochs=settings.epochs,
        steps_per_epoch=steps,
        measured_steps=len(times),
        seconds_per_step=a_step,
        seconds_per_epoch=an_epoch,
        seconds=settings.epochs * an_epoch,
        memory_bytes=peak_memory_bytes() if device == "cpu" else ask(device, "max_memory_allocated", device),
    )
