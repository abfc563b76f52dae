"""The perplexity of any matrix of log-probabilities whose targets are known."""

from __future__ import annotations

import numpy as np

from ..errors import SourceError
from ..progress import SILENT, Progress
from ..sources import Source
from ..training.evaluate import Evaluation


def evaluate_source(source: Source, *, progress: Progress = SILENT) -> Evaluation:
    """Score every target of a source by its row; `SourceError` when it does not say which tokens came."""
    if source.targets is None:
        raise SourceError(f"{source.description['path']} does not say which token came after each context")
    total = 0.0
    with progress.bar("evaluating", source.shape[0], "tokens") as bar:
        for start, log_probs in source.blocks():
            targets = source.targets[start : start + len(log_probs)]
            total -= log_probs[np.arange(len(targets)), targets].sum(dtype=np.float64)
            bar.advance(len(targets))
    return Evaluation.of(float(total), source.shape[0])
