"""The perplexity of a model on a text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.full_precision import evaluating, full_precision
from ..core.progress import SILENT, Progress, reporting
from ..corpora import Corpus
from ..errors import TrainingError
from ..language_models.model import LanguageModel
from ..language_models.reading import Reading, Stream, read

SEGMENT = 1024
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
        raise TrainingError(
            f"a text of {len(ids)} tokens cannot be scored: give at least two, because the first has no context"
        )


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
        f"the mean loss is {loss:.4g} nats, whose exponential is beyond every number: check that the targets belong to "
        "these contexts; if a training diverged, lower training.optimizer.learning_rate or training.optimizer.clip"
    )


def text_of(model: LanguageModel, corpus: Corpus, split: str) -> Reading:
    """Return a split as the model reads it, in batches to score."""
    return read(corpus, split, lines=model.backbone.context_lines, length=SEGMENT)


def evaluate(
    model: LanguageModel, text: Reading | NDArray[np.int64], *, progress: Progress | bool = False
) -> Evaluation:
    """Return how well a model predicts a text; see `mean_nll`.

    Raises:
        TrainingError: the text is too short, or the loss too large for a perplexity.
    """
    reading = _reading(text)
    loss = mean_nll(model, reading, progress=reporting(progress))
    return Evaluation(loss, perplexity_of(loss), len(reading.places))


def _reading(text: Reading | NDArray[np.int64]) -> Reading:
    reading = text if isinstance(text, Reading) else Stream(text, length=SEGMENT)
    check_scorable(reading.ids)
    return reading


def mean_nll(model: LanguageModel, text: Reading | NDArray[np.int64], *, progress: Progress = SILENT) -> float:
    """Score every token that a text predicts: of a stream all but the first, with the state carried over.

    Args:
        model: model to score, in evaluation mode; its former mode is restored.
        text: a text as the model reads it, or ids, int64, (N,), N ≥ 2, as one stream.

    Returns:
        The mean negative log-likelihood in nats; it is not finite if training diverged.

    Raises:
        TrainingError: the text is too short.
    """
    reading, device = _reading(text), next(model.parameters()).device
    rows = len(reading.places)
    total, state = 0.0, None
    with evaluating(model), full_precision(), progress.bar("evaluating", rows, "tokens") as bar:
        for number in range(len(reading.starts) - 1):
            batch = reading.batch(number).to(device)
            hidden, state = model.hidden(batch.inputs, state, contexts=batch.contexts)
            losses = model.head.nll(hidden, batch.targets, reduction="none", ignore_index=batch.ignore_index)
            total += losses.double().sum().item()
            bar.advance(batch.scored)
    return total / rows
