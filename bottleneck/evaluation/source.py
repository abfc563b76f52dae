"""The perplexity of any matrix of log-probabilities whose targets are known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import SourceError
from ..full_precision import full_precision
from ..progress import SILENT, Progress
from ..sources import Source
from ..sources.model import ModelSource
from ..training.evaluate import Evaluation

ROWS = 1024
"""Contexts of a model that are scored at once."""


def evaluate_source(source: Source, *, progress: Progress = SILENT) -> Evaluation:
    """Score every target of a source by its row; `SourceError` without targets, or for one of probability 0."""
    targets = source.targets
    if targets is None or (targets < 0).any():
        raise SourceError(
            f"{source.description['path']} does not say which token came after each context, so it has no perplexity: "
            "give a run, a Hugging Face model, an n-gram model, or a store of one of them"
        )
    total, start = 0.0, 0
    with progress.bar("evaluating", source.shape[0], "tokens") as bar:
        for losses in _losses(source, targets):
            source.check_losses(losses, start)
            total += losses.sum(dtype=np.float64)
            start += len(losses)
            bar.advance(len(losses))
    return Evaluation.of(float(total), source.shape[0])


@torch.no_grad()
def _losses(source: Source, targets: NDArray[np.int64]) -> Iterator[NDArray[np.floating]]:
    """Yield the negative log-likelihoods of consecutive targets; those of a model need no whole rows."""
    if not isinstance(source, ModelSource):
        for start, log_probs in source.blocks():
            yield -log_probs[np.arange(len(log_probs)), targets[start : start + len(log_probs)]]
        return
    ranges = source.ranges(ROWS)
    for rows, hidden in zip(ranges, source.hidden(ranges), strict=True):
        wanted = torch.from_numpy(targets[rows.start : rows.stop]).to(hidden.device)
        with full_precision():
            losses = source.head.nll(hidden, wanted, reduction="none")
        yield losses.cpu().numpy()
