"""The continuous cache, which raises the probability of words that followed similar contexts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.checks import check_positive
from ..core.devices import exact
from ..core.full_precision import evaluating, full_precision
from ..core.progress import SILENT, Progress
from ..errors import ConfigurationError
from ..language_models.model import LanguageModel
from ..results.published import tables
from ..training.evaluate import Perplexity, check_scorable

BLOCK = 256
"""Contexts compared with the cache at once."""

THETAS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
WEIGHTS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
"""Values that `tune_cache` tries: the range of Grave et al. 2017, §5, and beyond."""

_CODE = tables("merity", "code")[0]
WINDOWS = {corpus: int(_CODE.cell("window", corpus)) for corpus in _CODE.columns}
"""Number of contexts in the cache, by corpus, in AWD-LSTM's code; for other corpora 500."""


@dataclass(frozen=True, kw_only=True)
class Cache:
    """Settings of the continuous cache; the defaults are those of AWD-LSTM's code for Penn Treebank."""

    window: int = 500
    """Number of hidden states that are kept."""
    theta: float = 1.0
    """θ, which weights similar contexts more strongly."""
    weight: float = 0.1
    """λ, the cache's share of the probability."""

    def __post_init__(self) -> None:
        check_positive(window=self.window)
        if not (0 <= self.theta < math.inf and 0 <= self.weight < 1):
            raise ConfigurationError(
                f"a cache needs a theta of at least 0 and a weight in [0, 1), not {self.theta} and {self.weight}"
            )


def cache_evaluate(
    model: LanguageModel, ids: NDArray[np.integer[Any]], settings: Cache | None = None, *, progress: Progress = SILENT
) -> Perplexity:
    r"""Score every token of a text but the first by the model and a cache of its last contexts.

    .. math:: P(x | c_t) = (1 - λ) P_θ(x | c_t) + λ \frac{\sum_{i} 1[x_{i+1} = x] \exp(θ\, h_t·h_i)}{\sum_i \exp(θ\,
        h_t·h_i)}

    over the ``window`` contexts before t, computed in log space. For the first scored token the cache is empty, and its
    probability is the model's.

    Args:
        model: model to score, in evaluation mode; its former mode is restored.
        ids: int64, (N,), N ≥ 2.
        settings: settings of the cache.
        progress: where to report.

    Raises:
        TrainingError: the text is too short.

    References:
        Grave, Joulin and Usunier 2017, "Improving Neural Language Models with a Continuous Cache", eq. 1 to 4.
    """
    settings = settings or Cache()
    total = 0.0
    for log_probs, (cached,) in _scores(model, ids, settings.window, (settings.theta,), progress):
        total -= exact(_mixed(log_probs, cached, settings.weight)).sum().item()
    return Perplexity(total / (len(ids) - 1), len(ids) - 1, how="cache", settings=asdict(settings))


def tune_cache(
    model: LanguageModel, ids: NDArray[np.integer[Any]], *, window: int = Cache.window, progress: Progress = SILENT
) -> Cache:
    """Return the settings with the least loss on a text, the validation split, among `THETAS` and `WEIGHTS`."""
    losses = np.zeros((len(THETAS), len(WEIGHTS)))
    for log_probs, by_theta in _scores(model, ids, window, THETAS, progress):
        for row, cached in enumerate(by_theta):
            losses[row] -= [exact(_mixed(log_probs, cached, weight)).sum().item() for weight in WEIGHTS]
    theta, weight = np.unravel_index(losses.argmin(), losses.shape)
    return Cache(window=window, theta=THETAS[int(theta)], weight=WEIGHTS[int(weight)])


def _mixed(model: Tensor, cache: Tensor, weight: float) -> Tensor:
    """Return the logarithm of the two probabilities' mixture."""
    if not weight:
        return model
    mixed = torch.logaddexp(model + math.log1p(-weight), cache + math.log(weight))
    return torch.where(cache.isnan(), model, mixed)


def _scores(
    model: LanguageModel, ids: NDArray[np.integer[Any]], window: int, thetas: Sequence[float], progress: Progress
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yield log-probabilities of consecutive targets, (n,) each: the model's, and for each θ the cache's.

    The cache's are NaN where it is empty.
    """
    check_scorable(ids)
    text = torch.from_numpy(ids).to(model.head.weight.device, torch.int64)
    state = None
    keys, values = text.new_empty((0, model.backbone.hidden_size), dtype=model.head.weight.dtype), text[:0]
    with evaluating(model), progress.bar("evaluating with a cache", len(text) - 1, "tokens") as bar:
        for start in range(0, len(text) - 1, BLOCK):
            inputs = text[start : min(start + BLOCK, len(text) - 1)]
            targets = text[start + 1 : start + 1 + len(inputs)]
            with full_precision():
                hidden, state = model.hidden(inputs.unsqueeze(1), state)
                log_probs = -model.head.nll(hidden.squeeze(1), targets, reduction="none")
                keys, values = torch.cat([keys, hidden.squeeze(1)]), torch.cat([values, targets])
                cached = _cached(keys, values, len(inputs), window, thetas)
            keys, values = keys[-window:], values[-window:]
            bar.advance(len(inputs))
            yield log_probs, cached


def _cached(keys: Tensor, values: Tensor, count: int, window: int, thetas: Sequence[float]) -> list[Tensor]:
    """Return the cache's log-probabilities of the last ``count`` values, each from the ``window`` before it."""
    places = torch.arange(len(keys), device=keys.device)
    queries = places[len(keys) - count :]
    distance = queries.unsqueeze(1) - places
    outside = (distance < 1) | (distance > window)
    similarity = keys[queries] @ keys.T
    other = values[queries].unsqueeze(1) != values
    results = []
    for theta in thetas:
        scores = (theta * similarity).masked_fill(outside, -math.inf)
        # The difference of two infinities, NaN, is where the window is empty.
        results.append(torch.logsumexp(scores.masked_fill(other, -math.inf), 1) - torch.logsumexp(scores, 1))
    return results
