"""Mean squared gradients of a trained model over its training text, saved in a file of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core import tensor_file
from ..core.files import write_bytes
from ..core.full_precision import full_precision
from ..core.progress import SILENT, Progress
from ..errors import OutputError
from ..language_models.model import LanguageModel
from ..training.epochs import bptt_segments, columns, lengths

FILE = "gradient_statistics.safetensors"
BATCH_SIZE = 100
"""Parallel texts in Krause et al. 2018, and in Yang et al. 2018, table 9."""


@dataclass(frozen=True)
class GradientStatistics:
    """Mean squared gradients over the batches of a text."""

    mean_squares: Mapping[str, Tensor]
    """The mean over the batches of each learned parameter's squared gradient, float32, by the parameter's name."""
    batches: int
    """Number of batches."""


@contextmanager
def differentiable(model: LanguageModel) -> Iterator[dict[str, nn.Parameter]]:
    """Yield the learned parameters by name, with the model in eval mode and ready for backward passes.

    Products have full precision. cuDNN has no backward pass for recurrent layers in eval mode, so these are in training
    mode with their dropout at zero. Afterwards the modes are restored and gradients removed.
    """
    training = model.training
    recurrent = {module: module.dropout for module in model.modules() if isinstance(module, nn.RNNBase)}
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    model.eval()
    try:
        for module in recurrent:
            module.train()
            module.dropout = 0.0
        with full_precision(gradients=True):
            yield parameters
    finally:
        for module, dropout in recurrent.items():
            module.dropout = dropout
        for parameter in parameters.values():
            parameter.grad = None
        model.train(training)


def gradient_statistics(
    model: LanguageModel,
    ids: NDArray[np.integer[Any]],
    *,
    batch_size: int = BATCH_SIZE,
    bptt: int = 5,
    file: Path | None = None,
    identity: str = "",
    progress: Progress = SILENT,
) -> GradientStatistics:
    """Return the squared gradients of the mean negative log-likelihood over batches of a text.

    Args:
        model: the model; no dropout is applied, including weight drop.
        ids: int64, (N,), the training text.
        batch_size: number of parallel texts; a short text has fewer.
        bptt: number of tokens of each text in a batch; 5 in Krause et al. 2018.
        file: file that keeps the statistics, where it can be written; it is read if it holds those of the same
            ``identity`` and sizes.
        identity: hash of model and text.
        progress: progress display.

    Raises:
        TrainingError: for a text of fewer than two tokens.
    """
    batch_size = max(1, min(batch_size, len(ids) // 2))
    description = {"identity": identity, "batch_size": batch_size, "bptt": bptt}
    if file is not None and (kept := _read(file, description)) is not None:
        return kept
    data, device = columns(ids, batch_size), model.head.weight.device
    segments = lengths(len(data), bptt)
    batches = len(segments)
    with differentiable(model) as parameters, progress.bar("gradient statistics", batches, "batches") as bar:
        means = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
        state = model.backbone.initial_state(batch_size)
        for batch in bptt_segments(data, segments):
            hidden, after = model.hidden(batch.inputs.to(device), state)
            state = tuple(tensor.detach() for tensor in after)
            model.zero_grad()
            model.head.nll(hidden, batch.targets.to(device)).backward()
            for name, parameter in parameters.items():
                if parameter.grad is not None:
                    means[name].addcmul_(parameter.grad, parameter.grad, value=1 / batches)
            bar.advance(1)
    if file is not None:
        about = {**description, "batches": batches}
        try:
            write_bytes(file, tensor_file.pack(means, key="statistics", about=about))
        except OutputError as error:
            progress.line(f"the gradient statistics are not kept, and the next evaluation computes them again: {error}")
    return GradientStatistics(means, batches)


def _read(file: Path, description: Mapping[str, Any]) -> GradientStatistics | None:
    """Return the saved statistics; ``None`` for a file that is missing, damaged, or of another description."""
    try:
        tensors, saved = tensor_file.read(file, key="statistics")
    except tensor_file.DAMAGE:
        return None
    batches = (saved or {}).pop("batches", None)
    return GradientStatistics(tensors, batches) if saved == description else None
