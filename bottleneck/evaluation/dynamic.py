"""Dynamic evaluation: the model goes on learning from the text it is scored on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import ConfigurationError, TrainingError
from ..language_model import LanguageModel
from ..progress import SILENT, Progress
from ..training.evaluate import Evaluation, perplexity_of
from .differentiable import differentiable
from .statistics import GradientStatistics

MOST_NATS = 700
"""A token's mean loss beyond which there is no perplexity in float64."""


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """Settings of dynamic evaluation; the defaults are the MoS paper's for Penn Treebank (table 9)."""

    learning_rate: float = 0.002
    """η."""
    decay: float = 0.075
    """λ, the pull back to the trained weights."""
    epsilon: float = 0.001
    """ε."""
    bptt: int = 5
    """Tokens between two updates."""
    scaling: Literal["sum", "mean"] = "sum"
    """The units of the rates. R is the root of the sum of the batches' squared gradients, and D = R / Σ mean(R) over
    the weight matrices and vectors, as in the MoS authors' code; or R is the root of their mean, and D = R / mean(R),
    as Krause et al. 2018 print it. With N batches and P matrices and vectors, η and ε of the one are √N times those of
    the other, and λ is P times."""

    def __post_init__(self) -> None:
        """Refuse settings with which nothing could be learned or divided."""
        if not (self.learning_rate > 0 and self.epsilon > 0 and 0 <= self.decay < math.inf and self.bptt >= 1):
            raise ConfigurationError(
                "dynamic evaluation needs a learning rate and an epsilon above 0, a decay that is not negative and a "
                f"bptt of at least 1, not {self.learning_rate}, {self.epsilon}, {self.decay} and {self.bptt}"
            )
        if self.scaling not in ("sum", "mean"):
            raise ConfigurationError(f"unknown scaling {self.scaling!r}; known scalings are sum and mean")


def dynamic_evaluate(
    model: LanguageModel,
    ids: NDArray[np.integer[Any]],
    statistics: GradientStatistics,
    settings: Dynamic | None = None,
    *,
    progress: Progress = SILENT,
) -> Evaluation:
    r"""Score every token of a text but the first, with an update of the weights after each few of them.

    .. math:: θ ← θ + λ\, \min(D, 1/λ)\, (θ_0 - θ) - η\, \frac{g}{R + ε}

    with g the gradient of the tokens just scored, R the root of the summed or mean squared gradients in the training
    text, and D what R is relative to its mean (`Dynamic.scaling`). A token is scored before anything is learned from
    it. Nothing is dropped, weight drop included.

    Args:
        model: scored and put back as it was.
        ids: int64, (N,), N ≥ 2.
        statistics: of the training text.
        settings: rates; by default the MoS paper's.
        progress: where to report.

    Raises:
        TrainingError: the text is too short, or the loss grows beyond any perplexity.

    References:
        Krause, Kahembwe, Murray and Renals 2018, "Dynamic Evaluation of Neural Sequence Models", eq. 5 to 8.
    """
    settings = settings or Dynamic()
    if len(ids) < 2:
        raise TrainingError(f"a text of {len(ids)} tokens cannot be scored: the first has no context, so it takes two")
    text = torch.from_numpy(ids).to(model.head.weight.device, torch.int64).unsqueeze(1)
    total, state = 0.0, model.backbone.initial_state(1)
    with differentiable(model) as weights, progress.bar("dynamic evaluation", len(text) - 1, "tokens") as bar:
        update = _Update(model, weights, statistics, settings)
        try:
            for start in range(0, len(text) - 1, settings.bptt):
                targets = text[start + 1 : start + 1 + settings.bptt]
                hidden, after = model.hidden(text[start : start + len(targets)], state)
                state = tuple(tensor.detach() for tensor in after)
                nll = model.head.nll(hidden, targets)
                total += nll.item() * len(targets)
                if not total <= MOST_NATS * (len(text) - 1):
                    raise TrainingError(
                        f"dynamic evaluation went astray by token {start + len(targets)}: lower --learning-rate (now "
                        f"{settings.learning_rate:g}) or raise --epsilon (now {settings.epsilon:g})"
                    )
                nll.backward()
                update()
                bar.advance(len(targets))
        finally:
            update.undo()
    loss = total / (len(text) - 1)
    return Evaluation(loss, perplexity_of(loss), len(text) - 1)


class _Update:
    """One step of the rule, for all weights at once."""

    def __init__(
        self,
        model: LanguageModel,
        weights: list[torch.nn.Parameter],
        statistics: GradientStatistics,
        settings: Dynamic,
    ) -> None:
        names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        batches = statistics.batches if settings.scaling == "sum" else 1
        roots = [
            (statistics.mean_squares[name].to(weight.device) * batches).sqrt()
            for name, weight in zip(names, weights, strict=True)
        ]
        means = torch.stack([root.mean() for root in roots])
        usual = means.sum() if settings.scaling == "sum" else means.mean()
        self._weights: list[torch.Tensor] = list(weights)
        self._start = [weight.detach().clone() for weight in weights]
        self._pulls = [(settings.decay * root / usual).clamp(max=1.0) for root in roots]
        self._rates = [settings.learning_rate / (root + settings.epsilon) for root in roots]

    @torch.no_grad()
    def __call__(self) -> None:
        gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in self._weights]
        steps = torch._foreach_sub(self._start, self._weights)
        torch._foreach_mul_(steps, self._pulls)
        torch._foreach_addcmul_(steps, gradients, self._rates, value=-1)
        torch._foreach_add_(self._weights, steps)
        for weight in self._weights:
            weight.grad = None

    @torch.no_grad()
    def undo(self) -> None:
        """Put the trained weights back."""
        for weight, start in zip(self._weights, self._start, strict=True):
            weight.copy_(start)
