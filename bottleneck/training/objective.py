"""The training loss as one module, which processes share and torch compiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..backbones import State
from ..language_model import LanguageModel


class Objective(nn.Module):
    """The training loss of a stretch of text: mean negative log-likelihood and the model's own penalties.

    Args:
        model: model to train.
        mixed: whether matrix products are computed in bfloat16 (autocast), except those of recurrent layers on a GPU;
            weights, losses and the state stay in float32.
    """

    def __init__(self, model: LanguageModel, *, mixed: bool = False) -> None:
        super().__init__()
        self.model, self.mixed = model, mixed

    def forward(self, inputs: Tensor, targets: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """Return the loss, the mean negative log-likelihood in it, and the state after the stretch, detached.

        Inputs and targets are int64, (L, B); ``state`` is that before the stretch.
        """
        device = inputs.device.type
        # On a GPU, torch's autocast makes its LSTM float16, whatever type is asked for.
        with torch.autocast(device, torch.bfloat16, enabled=self.mixed and device == "cpu"):
            encoding = self.model.backbone.encode(inputs, state)
        with torch.autocast(device, torch.bfloat16, enabled=self.mixed):
            nll = self.model.head.nll(encoding.hidden, targets)
            penalties = encoding.penalty, self.model.head.penalty(encoding.hidden)
        loss = sum((penalty for penalty in penalties if penalty is not None), nll)
        dtype = self.model.head.weight.dtype
        return loss, nll.detach(), tuple(tensor.detach().to(dtype) for tensor in encoding.state)


def is_dropping(*settings: Mapping[str, Any]) -> bool:
    """Return whether a backbone or head with these settings uses dropout; each part of a batch draws its own masks."""
    return any("drop" in name and value for part in settings for name, value in part.items())


def accumulate(
    objective: nn.Module, inputs: Tensor, targets: Tensor, state: State, *, columns: int | None
) -> tuple[Tensor, State]:
    """Accumulate the gradient of a batch's loss in the parameters, over groups of ``columns`` columns.

    Fewer columns at once take less memory; ``None`` takes all. The other arguments are those of `Objective`, which may
    be wrapped. Return the mean negative log-likelihood, a scalar in nats, and the state after the batch's stretch.
    """
    batch_size = inputs.shape[1]
    starts = range(0, batch_size, columns or batch_size)
    nll, after = inputs.new_zeros((), dtype=torch.float32), []
    for start in starts:
        part = slice(start, start + (columns or batch_size))
        if isinstance(objective, nn.parallel.DistributedDataParallel):
            objective.require_backward_grad_sync = start == starts[-1]
        before = tuple(tensor[:, part].contiguous() for tensor in state)
        loss, own, new = objective(inputs[:, part], targets[:, part], before)
        share = inputs[:, part].shape[1] / batch_size
        (loss * share).backward()
        nll = nll + own * share
        after.append(new)
    return nll, tuple(torch.cat(pieces, 1) for pieces in zip(*after, strict=True))
