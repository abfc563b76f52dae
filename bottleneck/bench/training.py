"""``bottleneck bench training``: a training step of published models beside the same step in plain torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from ..core.machine import machine
from ..core.progress import SILENT, Progress
from ..core.version import __version__
from ..language_models.backbones import AWDLSTM
from ..language_models.model import LanguageModel
from ..language_models.reading import Batch
from ..training import RunConfig
from ..training import optimizer as optimizers
from ..training.config import parse
from ..training.objective import Objective, accumulate
from ..training.presets import find
from .heads import plain_nll
from .in_turn import Goal, check_goals, ratio, run_cases

LENGTH, TYPES, TOKENS = 70, 10_000, 929_589
"""Tokens of a segment, of the vocabulary and of the training text of Penn Treebank."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training step of a preset: forward, loss, backward, clipping and update."""

    preset: str
    batch_size: int
    """Columns of the batch."""
    plain: bool = False
    """Whether the step is `plain_loss`'s, which holds N × K × M tensors."""
    device: str = "cpu"
    shrink: int = 1
    """Divisor of the layers, the vocabulary and the batch."""

    @property
    def columns(self) -> int:
        """Number of columns of the measured batch."""
        return max(1, self.batch_size // self.shrink)


SOFTMAX = Case(preset="ptb-softmax", batch_size=20)
MOS = Case(preset="ptb-mos", batch_size=12)
CASES = {
    "softmax": SOFTMAX,
    "softmax plain": replace(SOFTMAX, plain=True),
    "mos": MOS,
    "mos plain": replace(MOS, plain=True),
    "mos, batch 20": replace(MOS, batch_size=20),
}
"""Softmax and MoS at their published batch sizes, and MoS at Softmax's, to compare the times of an epoch."""


def bench_training(*, device: str = "cpu", shrink: int = 1, progress: Progress = SILENT) -> dict[str, Any]:
    """Measure the time of a training step of ``ptb-softmax`` and ``ptb-mos`` in float32, each in its own process.

    Args:
        device: ``"cpu"`` or a CUDA device.
        shrink: divisor of layers, vocabulary and batch; the goals hold for 1.
        progress: progress display.

    Returns:
        ``machine``; ``cases``: median seconds of a step, seconds of an epoch of Penn Treebank at that rate, bytes of
        weights, gradients and all above the idle process, last loss; ``asked``, the project's goals: see `check_goals`.

    Raises:
        BottleneckError: when a case fails.
    """
    cases = {name: replace(case, device=device, shrink=shrink) for name, case in CASES.items()}
    rows = run_cases(cases, _work, device=device, shrink=shrink, progress=progress)
    for name, case in cases.items():
        rows[name]["epoch_seconds"] = rows[name]["seconds"] * math.ceil(TOKENS / (LENGTH * case.columns))
    return {
        "machine": machine(device),
        "device": device,
        "shrink": shrink,
        "cases": rows,
        "asked": check_goals(goals(rows, on_gpu=device != "cpu")),
        "version": __version__,
    }


def goals(rows: dict[str, dict[str, Any]], *, on_gpu: bool) -> list[Goal]:
    """Return the goals of the cases; those of an epoch's seconds are for a GPU."""
    epoch = {name: row["epoch_seconds"] if on_gpu else math.nan for name, row in rows.items()}
    batch_20 = "mos, batch 20"
    return [
        ("Softmax: seconds / plain", ratio(rows, "softmax", "softmax plain"), "<=", 1.0),
        ("MoS: plain seconds / ours", ratio(rows, "mos plain", "mos"), ">=", 1.5),
        ("MoS, batch 20: epoch / Softmax's", ratio(rows, batch_20, "softmax", "epoch_seconds"), "<=", 1.9),
        ("MoS, batch 20: memory / Softmax's", ratio(rows, batch_20, "softmax", "memory_bytes"), "<=", 1.3),
        ("Softmax: seconds an epoch", epoch["softmax"], "<=", 12.0),
        ("MoS, batch 20: seconds an epoch", epoch[batch_20], "<=", 25.0),
    ]


def _work(case: Case) -> Callable[[], dict[str, float]]:
    """Return a function that runs a step and returns its loss; the first call makes the model."""
    _step(replace(case, shrink=200))()
    step = cache(lambda: _step(case))
    return lambda: {"loss": float(step()())}


def _step(case: Case) -> Callable[[], Tensor]:
    """Return one step of a preset on random text: loss, backward, clipping and update; it returns the loss."""
    config, types = shrunk(find(case.preset).config, case.shrink), max(2, TYPES // case.shrink)
    torch.manual_seed(0)
    settings = config.training.optimizer
    with torch.device(case.device):
        model = LanguageModel(config.model, vocab_size=types)
        ids = torch.randint(types, (LENGTH + 1, case.columns))
    inputs, targets = ids[:-1], ids[1:]
    objective = Objective(model, mixed=config.training.precision == "bfloat16")
    state = model.backbone.initial_state(case.columns)
    optimizer = optimizers.build(settings, model.parameters(), model.head.parameter_settings())

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        if case.plain:
            loss = plain_loss(model, inputs, targets)
            loss.backward()
        else:
            loss = accumulate(objective, Batch(inputs, targets), state, columns=None)[0]
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        return loss.detach()

    return step


def shrunk(config: RunConfig, by: int) -> RunConfig:
    """Return a configuration with its layers divided by ``by``."""
    values = config.model_dump(mode="json")
    backbone, head = values["model"]["backbone"], values["model"]["head"]
    backbone["hidden_sizes"] = [max(2, size // by) for size in backbone["hidden_sizes"]]
    backbone["embedding_size"] = head["embedding_size"] = max(2, head["embedding_size"] // by)
    return parse(values, where="a smaller preset")


def plain_loss(model: LanguageModel, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of a segment by torch's own LSTM and dropout, and the loss as the papers print it.

    Args:
        model: model with an AWD-LSTM; its activations are not penalized.
        inputs: int64, (L, B).
        targets: int64, (L, B).
    """
    assert isinstance(model.backbone, AWDLSTM)
    config = model.backbone.config
    between = [config.dropout_hidden] * (len(config.hidden_sizes) - 1)
    hidden = F.dropout(model.backbone.embedding(inputs), config.dropout_input, model.training)
    for layer, probability in zip(model.backbone.layers, [*between, config.dropout_output], strict=True):
        weights = F.dropout(layer.get_parameter("weight_hh_l0"), config.weight_drop, model.training)
        raw, _ = functional_call(layer, {"weight_hh_l0": weights}, (hidden,))
        hidden = F.dropout(raw, probability, model.training)
    return plain_nll(model.head, hidden.flatten(0, 1), targets.flatten())
