"""The training loss as one module, which processes share and torch compiles."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..language_models.backbones import State
from ..language_models.model import LanguageModel
from ..language_models.reading import PADDING, Batch


class Objective(nn.Module):
    """The training loss of a segment of text: mean negative log-likelihood and the model's own penalties.

    With ``mixed``, matrix products are computed in bfloat16 (autocast), except those of recurrent layers on a GPU and
    on processors without bfloat16 LSTMs; weights, losses and the state stay in float32. ``fraction`` is the share of
    the predictions of a stream whose loss is computed, drawn at random in every call, at least one; the logits of the
    others are not computed.
    """

    def __init__(self, model: LanguageModel, *, mixed: bool = False, fraction: float = 1.0) -> None:
        super().__init__()
        self.model, self.mixed, self.fraction = model, mixed, fraction

    def forward(
        self, inputs: Tensor, targets: Tensor, state: State, contexts: Tensor | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """Return the loss, the mean negative log-likelihood in it, and the state after the segment, detached.

        Inputs, targets and contexts are those of a `Batch`; ``state`` is that before the segment. A batch with contexts
        starts in their state and leaves none behind.
        """
        device = inputs.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.mixed and _has_bfloat16_lstm(device)):
            if contexts is not None:
                state = self.model.backbone.read(contexts)
            encoding = self.model.backbone.encode(inputs, state)
        with torch.autocast(device, torch.bfloat16, enabled=self.mixed):
            # The head sees all hidden states: its dropout masks are those of the texts.
            ignored = None if contexts is None and self.fraction == 1 else PADDING
            nll = self.model.head.nll(encoding.hidden, self._scored(targets), ignore_index=ignored)
            penalties = encoding.penalty, self.model.head.penalty(encoding.hidden)
        loss = sum((penalty for penalty in penalties if penalty is not None), nll)
        dtype = self.model.head.weight.dtype
        after = encoding.state if contexts is None else ()
        return loss, nll.detach(), tuple(tensor.detach().to(dtype) for tensor in after)

    def _scored(self, targets: Tensor) -> Tensor:
        """Return the targets with `PADDING` for those whose loss is not computed."""
        if self.fraction == 1:
            return targets
        count = max(1, round(self.fraction * targets.numel()))
        left_out = torch.randperm(targets.numel(), device=targets.device)[count:]
        return targets.flatten().index_fill(0, left_out, PADDING).view_as(targets)


def _has_bfloat16_lstm(device: str) -> bool:
    """Return whether torch computes an LSTM in bfloat16 under autocast.

    On a GPU, autocast runs it in float16, whatever type is given. On a CPU, oneDNN has bfloat16 LSTMs for AVX-512 alone
    and raises an error elsewhere.
    """
    return device == "cpu" and torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def accumulate(objective: nn.Module, batch: Batch, state: State, *, columns: int | None) -> tuple[Tensor, State]:
    """Accumulate the gradient of a batch's loss in the parameters, over groups of ``columns`` columns.

    Fewer columns at once take less memory; ``None`` takes all. The `Objective` may be wrapped; ``state`` is that before
    the batch. Return the mean negative log-likelihood, a scalar in nats, and the state after the batch's segment.
    """
    batch_size, scored = batch.inputs.shape[1], batch.scored
    starts = range(0, batch_size, columns or batch_size)
    nll, after = batch.inputs.new_zeros((), dtype=torch.float32), []
    for start in starts:
        columns_of_part = slice(start, start + (columns or batch_size))
        part = batch.columns(columns_of_part)
        if isinstance(objective, nn.parallel.DistributedDataParallel):
            objective.require_backward_grad_sync = start == starts[-1]
        before = tuple(tensor[:, columns_of_part].contiguous() for tensor in state)
        loss, part_nll, new = objective(part.inputs, part.targets, before, part.contexts)
        share = part.scored / scored
        (loss * share).backward()
        nll = nll + part_nll * share
        after.append(new)
    return nll, tuple(torch.cat(pieces, 1) for pieces in zip(*after, strict=True))
