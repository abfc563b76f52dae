"""Mean squared gradients of a trained model over its training text, kept in one file beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import tensor_file
from ..files import write_bytes
from ..language_model import LanguageModel
from ..progress import SILENT, Progress
from ..training.batches import columns, lengths, stretches
from ..training.objective import accumulate
from .differentiable import differentiable

FILE = "gradient_statistics.safetensors"


@dataclass(frozen=True)
class GradientStatistics:
    """Squared gradients of a text's batches."""

    mean_squares: Mapping[str, Tensor]
    """The mean over the batches of each learned parameter's squared gradient, float32, by the parameter's name."""
    batches: int
    """Number of batches."""


class _Scored(torch.nn.Module):
    """The negative log-likelihood alone, in the form that gradients are accumulated from."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, inputs: Tensor, targets: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        hidden, after = self.model.hidden(inputs, state)
        nll = self.model.head.nll(hidden, targets)
        return nll, nll.detach(), tuple(tensor.detach() for tensor in after)


def gradient_statistics(
    model: LanguageModel,
    ids: NDArray[np.integer[Any]],
    *,
    batch_size: int = 100,
    bptt: int = 5,
    file: Path | None = None,
    identity: str = "",
    progress: Progress = SILENT,
) -> GradientStatistics:
    """Return the squared gradients of the mean negative log-likelihood over batches of a text.

    Args:
        model: nothing of it is dropped, its weight drop included.
        ids: int64, (N,), of the training text.
        batch_size: parallel texts; 100 in Krause et al. 2018 and in the MoS paper's table 9. Fewer of a text that is
            too short for as many.
        bptt: tokens of a batch's stretches; 5 in Krause et al. 2018.
        file: where they are kept; read from there when it holds those of the same ``identity`` and sizes.
        identity: of model and text, a hash.
        progress: where to report.

    Raises:
        TrainingError: the text has fewer than two tokens.
        OutputError: the file cannot be written.
    """
    batch_size = max(1, min(batch_size, len(ids) // 2))
    description = {"identity": identity, "batch_size": batch_size, "bptt": bptt}
    if file is not None and (kept := _read(file, description)) is not None:
        return kept
    data = columns(ids, batch_size)
    pieces = lengths(len(data), bptt)
    scored, device = _Scored(model), model.head.weight.device
    with differentiable(model) as parameters, progress.bar("gradient statistics", len(pieces), "batches") as bar:
        sums = [torch.zeros_like(parameter) for parameter in parameters]
        state = model.backbone.initial_state(batch_size)
        for _, inputs, targets in stretches(data, pieces):
            for parameter in parameters:
                parameter.grad = None
            _, state = accumulate(scored, inputs.to(device), targets.to(device), state, columns=None)
            for total, parameter in zip(sums, parameters, strict=True):
                if parameter.grad is not None:
                    total.addcmul_(parameter.grad, parameter.grad)
            bar.advance(1)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    means = {name: total / len(pieces) for name, total in zip(names, sums, strict=True)}
    found = GradientStatistics(means, len(pieces))
    if file is not None:
        about = {**description, "batches": len(pieces)}
        write_bytes(file, tensor_file.pack(means, key="statistics", about=about))
    return found


def _read(file: Path, description: Mapping[str, Any]) -> GradientStatistics | None:
    """Return what the file holds; ``None`` when it is not there, damaged, or of something else."""
    try:
        tensors, found = tensor_file.read(file, key="statistics")
    except tensor_file.DAMAGE:
        return None
    batches = (found or {}).pop("batches", None)
    return GradientStatistics(tensors, batches) if found == description else None
