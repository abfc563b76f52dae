"""The perplexity of a model on a text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from ..core.devices import exact
from ..core.full_precision import evaluating, full_precision
from ..core.progress import SILENT, Progress, reporting
from ..corpora import Corpus
from ..errors import Function, Sentence, TrainingError
from ..language_models.model import LanguageModel
from ..language_models.reading import Reading, read, stream
from ..results.base import Result
from ..results.quantity import ANSWER, NOWHERE, TABLE, Quantity

SEGMENT = 1024
"""Tokens encoded at once; the state is carried over, so this affects only speed."""
How = Literal["static", "dynamic", "cache"]
_WORDS = {"static": "", "dynamic": " by dynamic evaluation", "cache": " with a cache"}


@final
@dataclass(frozen=True, repr=False)
class Perplexity(Result, kind="perplexity"):
    """How well a model predicts a text: one number, without a picture.

    `TrainingError` when the loss is too large for a perplexity.
    """

    loss: float
    """Mean negative log-likelihood of the scored tokens, in nats."""
    tokens: int
    """Number of scored tokens."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Description of the source; empty for a model and a text in memory."""
    how: How = "static"
    """``"static"``, ``"dynamic"`` (dynamic evaluation) or ``"cache"``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of dynamic evaluation or of the cache."""
    bytes: int | None = None
    """Bytes of the scored tokens, if their texts are known."""

    def __post_init__(self) -> None:
        perplexity_of(self.loss)

    @property
    def perplexity(self) -> float:
        """Exponential of the loss."""
        return perplexity_of(self.loss)

    @property
    def bits(self) -> float:
        """The loss in bits per token."""
        return self.loss / math.log(2)

    @property
    def per_byte(self) -> float | None:
        """Perplexity per byte of the text, which compares models of different vocabularies."""
        return perplexity_of(self.loss * self.tokens / self.bytes) if self.bytes else None

    def quantities(self) -> Iterator[Quantity]:
        """Yield the perplexity, the loss, the number of tokens and the settings."""
        name = f"{self.source.get('split') or ''} perplexity{_WORDS[self.how]}".strip()
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        value = f"{self.perplexity:{'.3f' if self.perplexity < 1e6 else '.4g'}}"
        verdict = f"{name} {value}: as uncertain as a choice among that many equally likely tokens"
        yield Quantity("verdict", verdict, "verdict")
        yield Quantity("perplexity", self.perplexity, name, TABLE, value)
        yield Quantity("loss", self.loss, "loss", text=f"{self.loss:.5f} nats, {self.bits:.5f} bits per token")
        yield Quantity("bits", self.bits, shown=NOWHERE)
        yield Quantity("tokens", self.tokens, "tokens", ANSWER | TABLE)
        if self.per_byte:
            text = f"{self.per_byte:.4f}, {math.log2(self.per_byte):.4f} bits; {self.bytes:,} bytes"
            yield Quantity("perplexity_per_byte", self.per_byte, "per byte", ANSWER | TABLE, text)
        if settings:
            yield Quantity("settings", self.settings, "settings", text=settings)
        after = Sentence(Function("compare"), " says whether another model's differs by more than its standard error")
        yield Quantity("next", after, "next")


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
) -> Perplexity:
    """Return how well a model predicts a text, as it reads it, or ids, int64, (N,), N ≥ 2, as one stream.

    `TrainingError` when the text is too short, or the loss too large for a perplexity.
    """
    reading = _reading(text)
    return Perplexity(mean_nll(model, reading, progress=reporting(progress)), len(reading.places))


def _reading(text: Reading | NDArray[np.int64]) -> Reading:
    reading = text if isinstance(text, Reading) else stream(text, length=SEGMENT)
    check_scorable(reading.ids)
    return reading


def mean_nll(model: LanguageModel, text: Reading | NDArray[np.int64], *, progress: Progress = SILENT) -> float:
    """Return the mean negative log-likelihood in nats, which is not finite if training diverged.

    Every token is scored that a text predicts: of a stream all but the first, with the state carried over. The model is
    in evaluation mode, and its former mode is restored. `TrainingError` for a text that is too short.
    """
    reading, device = _reading(text), next(model.parameters()).device
    rows = len(reading.places)
    total, state = 0.0, None
    with evaluating(model), full_precision(), progress.bar("evaluating", rows, "tokens") as bar:
        for number in range(len(reading.edges) - 1):
            batch = reading.batch(number).to(device)
            hidden, state = model.hidden(batch.inputs, state, contexts=batch.contexts)
            losses = model.head.nll(hidden, batch.targets, reduction="none", ignore_index=batch.ignore_index)
            total += exact(losses).sum().item()
            bar.advance(batch.scored)
    return total / rows
