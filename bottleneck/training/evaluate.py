"""Exact perplexity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..language_model import LanguageModel
from ..progress import SILENT, Progress

STRETCH = 1024
"""Tokens encoded at once; the state is carried, so it changes nothing but speed."""


@dataclass(frozen=True)
class Evaluation:
    """How well a model predicts a text."""

    loss: float
    """Mean negative log-likelihood of the scored tokens, in nats."""
    perplexity: float
    """exp of it."""
    tokens: int
    """Scored tokens: all but the first, which has no context."""


@torch.no_grad()
def evaluate(model: LanguageModel, ids: NDArray[np.int64], *, progress: Progress = SILENT) -> Evaluation:
    """Score every token of a text but the first, in one sequence with the state carried all the way.

    Args:
        model: put into eval mode while it is scored, and back afterwards.
        ids: int64, (N,).
    """
    device = next(model.parameters()).device
    text = torch.from_numpy(ids).to(device).unsqueeze(1)
    training, total, state = model.training, 0.0, None
    model.eval()
    with progress.bar("evaluating", len(ids) - 1, "tokens") as bar:
        for start in range(0, len(ids) - 1, STRETCH):
            inputs = text[start : min(start + STRETCH, len(ids) - 1)]
            hidden, state = model.hidden(inputs, state)
            targets = text[start + 1 : start + 1 + len(inputs)]
            total += model.head.nll(hidden, targets, reduction="none").double().sum().item()
            bar.advance(len(inputs))
    model.train(training)
    loss = total / (len(ids) - 1)
    return Evaluation(loss, math.exp(loss), len(ids) - 1)
