"""Exact perplexity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import TrainingError
from ..full_precision import full_precision
from ..language_model import LanguageModel
from ..progress import SILENT, Progress

STRETCH = 1024
"""Tokens encoded at once; the state is carried over, so this affects only speed."""


@dataclass(frozen=True)
class Evaluation:
    """How well a model predicts a text."""

    loss: float
    """Mean negative log-likelihood of the scored tokens, in nats."""
    perplexity: float
    """Exponential of the loss."""
    tokens: int
    """Number of scored tokens: all but the first, which has no context."""

    @classmethod
    def of(cls, total: float, tokens: int) -> Evaluation:
        """Return the evaluation of ``tokens`` tokens, given the sum ``total`` of their losses in nats."""
        return cls(total / tokens, perplexity_of(total / tokens), tokens)


def check_scorable(ids: NDArray[np.integer[Any]]) -> None:
    """Refuse a text without a token to score."""
    if len(ids) < 2:
        raise TrainingError(f"a text of {len(ids)} tokens cannot be scored: the first has no context, so it takes two")


def perplexity_of(loss: float) -> float:
    """Return the exponential of a mean loss in nats; `TrainingError` if it is not finite.

    >>> round(perplexity_of(2.0), 3)
    7.389
    """
    try:
        if math.isfinite(loss):
            return math.exp(loss)
    except OverflowError:
        pass
    raise TrainingError(
        f"the mean loss is {loss:.4g} nats, which has no perplexity: training went astray; lower "
        "training.optimizer.learning_rate or training.optimizer.clip and train into a new folder"
    )


def evaluate(model: LanguageModel, ids: NDArray[np.int64], *, progress: Progress = SILENT) -> Evaluation:
    """Return how well a model predicts a text; see `mean_nll`.

    Raises:
        TrainingError: the text is too short, or the loss too large for a perplexity.
    """
    loss = mean_nll(model, ids, progress=progress)
    return Evaluation(loss, perplexity_of(loss), len(ids) - 1)


@torch.no_grad()
def mean_nll(model: LanguageModel, ids: NDArray[np.int64], *, progress: Progress = SILENT) -> float:
    """Score every token of a text but the first, as one sequence with the state carried over.

    Args:
        model: model to score, in evaluation mode; its former mode is restored.
        ids: int64, (N,), N ≥ 2.

    Returns:
        The mean negative log-likelihood in nats; it is not finite if training diverged.

    Raises:
        TrainingError: the text is too short.
    """
    check_scorable(ids)
    device = next(model.parameters()).device
    text = torch.from_numpy(ids).to(device).unsqueeze(1)
    training, total, state = model.training, 0.0, None
    model.eval()
    try:
        with full_precision(), progress.bar("evaluating", len(ids) - 1, "tokens") as bar:
            for start in range(0, len(ids) - 1, STRETCH):
                inputs = text[start : min(start + STRETCH, len(ids) - 1)]
                hidden, state = model.hidden(inputs, state)
                targets = text[start + 1 : start + 1 + len(inputs)]
                total += model.head.nll(hidden, targets, reduction="none").double().sum().item()
                bar.advance(len(inputs))
    finally:
        model.train(training)
    return total / (len(ids) - 1)
