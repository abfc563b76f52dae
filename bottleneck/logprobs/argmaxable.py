"""Which tokens a model's output layer can never predict."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import SourceError
from ..heads.pointwise import Pointwise
from ..theory import ArgmaxReport, unargmaxable
from .base import Source
from .sources import ModelSource
from .sources.hf_head import OutputLayer


def argmaxable(source: Source, **options: Any) -> ArgmaxReport:
    """Decide for each token of a source's output layer whether any context vector makes it the argmax.

    Args:
        source: a run or Hugging Face model with one softmax: log-linear, or behind an increasing function of each
            logit; or a matrix of kind ``"matrix"``, W itself, (M, d).
        options: those of `theory.unargmaxable`.

    Raises:
        SourceError: for a mixture, whose argmax is not decided by one set of logits, or what is only log-probabilities.
        MatrixError: for numbers that are not finite.
    """
    W, b = output_embeddings(source)
    return unargmaxable(W, b, **options)


def output_embeddings(source: Source) -> tuple[Tensor, Tensor | None]:
    """Return W, (M, d), and b, (M,), of the logits that an increasing function may follow; see `argmaxable`."""
    what, kind = source.description["path"], source.description["kind"]
    if isinstance(source, ModelSource):
        layer: Any = source.layer
        if source.log_linear is None and not isinstance(layer, Pointwise | OutputLayer):
            raise SourceError(
                f"{what} has a {source.description['head']} head: the argmax of a mixture is not decided by one set of "
                "logits; give a model with a single softmax"
            )
        return layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
    if kind == "matrix":
        return torch.cat([torch.from_numpy(block.log_probs.copy()) for block in source.blocks()]), None
    raise SourceError(
        f"{what} is no output layer: give a run, a Hugging Face model, or W itself as a .npy or .safetensors matrix"
    )
