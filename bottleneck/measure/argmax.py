"""Which tokens a model's output layer can never predict."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor

from ..core.checks import check_above_zero, check_positive, typed
from ..core.options import Opening, takes
from ..core.progress import Progress, reporting
from ..errors import Parameter, SourceError
from ..heads.log_linear import LogLinear
from ..heads.pointwise import Pointwise
from ..hugging_face import HuggingFaceOnText
from ..language_models import ModelOnText
from ..sources import MatrixSource, Source, open_source
from ..theory import ArgmaxReport, unargmaxable


@takes(Opening)
@typed
def argmaxable(
    source: Any,
    *,
    limit: float | None = 60.0,
    workers: int = 1,
    progress: Progress | bool = False,
    **options: Unpack[Opening],
) -> ArgmaxReport:
    """Decide for each token of a source's output layer whether any context vector makes it the argmax.

    Args:
        source: a model as for `rank`, whose head is a single softmax, log-linear or with an increasing function
            applied to each logit; or W itself, (M, d), with ``kind="matrix"``.
        limit: seconds for each token's linear program; a token that exceeds it is reported as unknown.
        workers: number of processes; see `theory.unargmaxable`.
        progress: where to report; ``True`` means standard error.
        options: how the source is opened, see `Opening`.

    Raises:
        SourceError: for a mixture, whose argmax no single set of logits decides, or a matrix of log-probabilities.
        MatrixError: for numbers that are not finite.
    """
    started = time.monotonic()
    check_positive(workers=workers)
    check_above_zero(limit=limit)
    opened = open_source(source, **options)
    W, b = output_embeddings(opened)
    report = unargmaxable(W, b, seconds=limit, workers=workers, progress=reporting(progress))
    tokens = opened.vocabularies["tokenizer"] if isinstance(opened, HuggingFaceOnText) else None
    padding = range(0) if tokens is None else range(tokens, report.vocab)
    seconds = round(time.monotonic() - started, 3)
    return replace(report, source=opened.description, padding=padding, seconds=seconds)


@typed
def output_embeddings(source: Source) -> tuple[Tensor, Tensor | None]:
    """Return the output embeddings W, (M, d), and the output bias b, (M,), of a source; see `argmaxable`."""
    what = source.description["path"]
    if isinstance(source, ModelOnText):
        head = source.head
        if not isinstance(head, LogLinear | Pointwise):
            raise SourceError(
                f"{what} has a {source.description['head']} head: the argmax of a mixture is not decided by one set of "
                "logits; give a model with a single softmax"
            )
        return head.weight.detach().cpu(), None if head.bias is None else head.bias.detach().cpu()
    if isinstance(source, MatrixSource) and source.description["kind"] == "matrix":
        return torch.cat([torch.from_numpy(block.log_probs.copy()) for block in source.blocks()]), None
    raise SourceError(
        f"{what} is not an output layer: give a run, a Hugging Face model, or a matrix file of W with ",
        Parameter("kind", "matrix"),
    )
