"""The perplexity of a model on a text: plain, by dynamic evaluation, or with a cache."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Unpack, final, get_args

from ..errors import ConfigurationError
from ..models import RunOnText
from ..progress import Progress, reporting
from ..result import Result
from ..sources import Opening, Source, open_source
from ..sources.model import ModelSource
from ..sources.opening import shows
from ..training.evaluate import Evaluation
from .dynamic import Dynamic, published_dynamic
from .of_run import cached_scores, dynamic_scores
from .source import evaluate_source

How = Literal["static", "dynamic", "cache"]
NAMES: dict[str, str] = {"static": "", "dynamic": " by dynamic evaluation", "cache": " with a cache"}
SETTINGS = {"static": (), "dynamic": tuple(field.name for field in fields(Dynamic)), "cache": ("window",)}
"""Names of the settings of each way to evaluate."""


@final
@dataclass(frozen=True, repr=False)
class Perplexity(Result):
    """How well a model predicts a text."""

    source: Mapping[str, Any]
    """Description of the source."""
    how: How
    """``"static"``, ``"dynamic"`` (dynamic evaluation) or ``"cache"``."""
    settings: Mapping[str, Any]
    """Settings of dynamic evaluation or of the cache."""
    tokens: int
    """Number of scored tokens."""
    loss: float
    """Mean negative log-likelihood of the scored tokens, in nats."""
    perplexity: float
    """Exponential of the loss."""

    @property
    def bits(self) -> float:
        """The loss in bits per token."""
        return self.loss / math.log(2)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "source": dict(self.source),
            "how": self.how,
            "settings": dict(self.settings),
            "tokens": self.tokens,
            "loss": self.loss,
            "bits": self.bits,
            "perplexity": self.perplexity,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the scores as pairs of label and text."""
        split = self.source.get("split")
        label = f"{split} perplexity{NAMES[self.how]}" if split else f"perplexity{NAMES[self.how]}"
        return [
            (label, f"{self.perplexity:.3f}"),
            ("loss", f"{self.loss:.5f} nats, {self.bits:.5f} bits per token"),
            ("tokens", f"{self.tokens:,}"),
        ]


@shows(Opening)
def perplexity(
    source: Any,
    *,
    how: How = "static",
    settings: Mapping[str, Any] | None = None,
    progress: Progress | bool = False,
    **options: Unpack[Opening],
) -> Perplexity:
    """Score the token that follows each context of a source.

    A run reads its split as one sequence, a Hugging Face model in the windows that `rank` measures.

    Args:
        source: as for `rank`; the tokens that follow its contexts must be known.
        how: ``"static"``, or for a run also ``"dynamic"`` (`dynamic_evaluate`) or ``"cache"`` (`cache_evaluate`).
        settings: values that replace the published ones: fields of `Dynamic`, or ``window`` for the cache.
        progress: where to report; ``True`` means standard error.
        options: how the source is opened, see `Opening`.

    Raises:
        SourceError: when the source does not say which tokens follow its contexts.
        ConfigurationError: for a setting that does not apply.
        BottleneckError: for a source that cannot be read.
    """
    given = dict(settings or {})
    if how not in get_args(How):
        raise ConfigurationError(f"how must be one of {', '.join(get_args(How))}, not {how!r}")
    if unknown := sorted(given.keys() - {*SETTINGS[how]}):
        takes = ", ".join(SETTINGS[how]) or "no settings"
        raise ConfigurationError(f"{unknown[0]} does not apply to {how} evaluation, which takes {takes}")
    opened, report = open_source(source, **options), reporting(progress)
    used: dict[str, Any] = {}
    if how == "static":
        scores = evaluate_source(opened, progress=report)
    else:
        scores, used = _adaptive(_run_of(opened, how), how, given, report)
    return Perplexity(opened.description, how, used, scores.tokens, scores.loss, scores.perplexity)


def _run_of(source: Source, how: str) -> RunOnText:
    """Return the run behind a source; `ConfigurationError` when it is no whole split of one."""
    model = source.model if isinstance(source, ModelSource) else None
    if not isinstance(model, RunOnText):
        raise ConfigurationError(f"{how} evaluation takes a run, and {source.description['path']} is none")
    if not model.is_whole:
        raise ConfigurationError(f"{how} evaluation takes a whole split: leave out --contexts")
    return model


def _adaptive(
    model: RunOnText, how: str, given: Mapping[str, Any], progress: Progress
) -> tuple[Evaluation, dict[str, Any]]:
    """Return the scores of a run that learns while it is evaluated, and the settings that were used."""
    run, corpus, split = model.run, model.corpus, model.split
    if how == "cache":
        scores, tuned = cached_scores(run, corpus, split=split, progress=progress, **given)
        return scores, {**asdict(tuned), "chosen_on": "valid"}
    chosen = replace(published_dynamic(run.model.config.head.name, corpus.name), **given)
    return dynamic_scores(run, corpus, split=split, settings=chosen, progress=progress), asdict(chosen)
