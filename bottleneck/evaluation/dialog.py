"""Scores of a dialog model: perplexity, and BLEU of its responses, as in the MoS paper after Zhao et al. 2017."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from ..core.progress import SILENT, Progress
from ..corpora import EOS, Corpus
from ..errors import ConfigurationError, Parameter, SourceError
from ..language_models import ModelOnText, RunModel
from ..language_models.model import LanguageModel
from ..language_models.reading import Pairs
from ..results.base import Drawings, Result
from ..results.quantity import ANSWER, NOWHERE, TABLE, Quantity
from ..sources import Source
from ..training.evaluate import Perplexity
from .beam import Beam, beam_search
from .scoring import perplexity

ORDERS = (1, 2, 3, 4)
SCORES = tuple(f"BLEU-{order} {kind}" for order in ORDERS for kind in ("precision", "recall"))
RESAMPLES = 1000
"""Resamples of a bootstrap interval."""
COVERAGE = 0.95
"""Share of the resampled means that an interval holds."""
CONTEXTS_AT_ONCE = 32
"""Contexts that are answered at once: with a beam of 10, 320 rows of log-probabilities."""

MODEL = ("head", "seed", "parameters", "embedding_size")
"""What the scores say of a run."""

Tokens = Sequence[Hashable]


@dataclass(frozen=True)
class Score:
    """A mean over contexts with its bootstrap interval."""

    mean: float
    low: float
    high: float

    @property
    def value(self) -> float:
        """The mean."""
        return self.mean


@dataclass(frozen=True)
class Bleu(Result, kind="bleu"):
    """BLEU of a model's responses to the contexts of a split."""

    contexts: int
    beam: Beam
    scores: Mapping[str, Score]
    """By the names in ``SCORES``."""

    def quantities(self) -> Iterator[Quantity]:
        """Yield each score, and how it was computed."""
        for name, each in self.scores.items():
            text = f"{each.mean:.3f} ({each.low:.3f} to {each.high:.3f})"
            yield Quantity(f"scores.{name}", each, name, ANSWER | TABLE, text)
        for key, value in {"references": 1, "smoothing": "NLTK method 7", "coverage": COVERAGE}.items():
            yield Quantity(key, value, shown=NOWHERE)

    def panels(self) -> Drawings:
        """Return a panel of the scores with their intervals."""
        from ..results.plotting.measures import draw_intervals

        return [partial(draw_intervals, scores=self.scores)]


def bleu(
    model: LanguageModel,
    corpus: Corpus,
    *,
    split: str = "test",
    contexts: int | None = None,
    beam: Beam | None = None,
    progress: Progress = SILENT,
) -> Bleu:
    """Answer the contexts of a split by beam search, and compare the responses with the lines that follow.

    With one reference, precision is the mean of `sentence_bleu` over a context's responses and recall the largest
    (Zhao et al. 2017). Intervals are percentiles of the mean over resamples of whole conversations, because the
    lines of one conversation are alike.

    Args:
        model: in evaluation mode, with a backbone that answers contexts.
        corpus: of the split.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        contexts: number of contexts to answer, from the first; by default all.
        beam: settings of the search; by default the MoS paper's.
        progress: where to report.

    Raises:
        SourceError: the model reads a stream, or the split has fewer contexts.
        ConfigurationError: NLTK is not installed.
    """
    if model.backbone.context_lines is None:
        raise SourceError(
            f"the backbone {model.config.backbone.name} reads a text as one stream, without responses: BLEU needs a "
            "run with the backbone encoder-decoder"
        )
    _smoothing()  # before the search, which takes minutes
    pairs = Pairs(corpus, split, lines=model.backbone.context_lines, at_once=CONTEXTS_AT_ONCE)
    count = len(pairs) if contexts is None else contexts
    if not 1 <= count <= len(pairs):
        raise SourceError(
            Parameter("answers"), f" must be between 1 and the {len(pairs):,} of this split, not {count:,}"
        )
    beam, end = beam or Beam(), corpus.vocabulary.index[EOS]
    device, scores = model.head.weight.device, np.empty((count, len(SCORES)))
    with progress.bar("answering", count, "contexts") as bar:
        for start in range(0, count, CONTEXTS_AT_ONCE):
            numbers = range(start, min(start + CONTEXTS_AT_ONCE, count))
            answers = beam_search(model, pairs.of(numbers).to(device), end=end, settings=beam)
            for number, responses in zip(numbers, answers, strict=True):
                scores[number] = context_scores(pairs.references[number], [each.ids for each in responses])
            bar.advance(len(numbers))
    low, high = bootstrap(scores, groups=pairs.opened[:count])
    means = scores.mean(0)
    numbers_of = zip(SCORES, means.tolist(), low.tolist(), high.tolist(), strict=True)
    return Bleu(count, beam, {name: Score(mean, least, most) for name, mean, least, most in numbers_of})


def context_scores(reference: Tokens, responses: Sequence[Tokens]) -> list[float]:
    """Return the values of ``SCORES`` for one context: mean and maximum over its responses, order after order."""
    table = np.array([sentence_bleu(reference, response) for response in responses])
    return np.stack([table.mean(0), table.max(0)], 1).ravel().tolist()


def sentence_bleu(reference: Tokens, response: Tokens) -> list[float]:
    """Return BLEU-1 to BLEU-4 of one response against one reference, smoothed by NLTK's method 7.

    BLEU-n weighs the n-gram precisions up to n equally, each order a call of its own, as in the code of Zhao et al.
    Method 7 (Chen and Cherry 2014) averages each precision with its neighbours, taking the first plus one before the
    first and that of 5-grams after the last: a long perfect response scores more than 1, and a perfect response of one
    word less in BLEU-2 to BLEU-4. A response without a common word, or without a word, scores 0.

    Example:
        >>> [round(score, 3) for score in sentence_bleu("yes i do .".split(), "yes i think so .".split())]
        [0.733, 0.539, 0.351, 0.236]
    """
    from nltk.translate import bleu_score

    smoothing = _smoothing()
    return [
        float(bleu_score.sentence_bleu([reference], response, weights=weights, smoothing_function=smoothing))
        for weights in ([1 / order] * order for order in ORDERS)
    ]


def _smoothing() -> Any:
    try:
        from nltk.translate.bleu_score import SmoothingFunction
    except ImportError as error:
        raise ConfigurationError("BLEU is computed by NLTK: pip install 'softmax-bottleneck[dialog]'") from error
    return SmoothingFunction().method7


def bootstrap(
    scores: NDArray[np.float64], *, groups: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and upper ends of percentile intervals of the mean of ``scores``, (contexts, scores).

    Whole ``groups`` are resampled: (contexts,), the conversation of each context.
    """
    _, member = np.unique(groups, return_inverse=True)
    sizes = np.bincount(member)
    sums = np.stack([np.bincount(member, weights=column) for column in scores.T], 1)
    groups_of_resamples = np.random.default_rng(0).integers(len(sizes), size=(RESAMPLES, len(sizes)))
    means = sums[groups_of_resamples].sum(1) / sizes[groups_of_resamples].sum(1)[:, None]
    low, high = np.quantile(means, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2], axis=0)
    return low, high


@final
@dataclass(frozen=True)
class DialogScores(Result, kind="dialog"):
    """Perplexity of a run, and BLEU of its responses."""

    perplexity: Perplexity
    model: Mapping[str, Any]
    """What ``MODEL`` names."""
    bleu: Bleu

    def plain(self) -> dict[str, Any]:
        """Return the values of the perplexity and of the run beside BLEU's."""
        return {**self.perplexity.plain(), **self.model, "bleu": self.bleu.plain()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the scores that `to_dict` returned."""
        model = {name: values.get(name) for name in MODEL}
        return cls(Perplexity.from_dict(values), model, Bleu.from_dict(values["bleu"]))

    def quantities(self) -> Iterator[Quantity]:
        """Yield those of the perplexity and of BLEU."""
        *scores, following = self.perplexity.quantities()
        yield from (*scores, *self.bleu.quantities(), following)

    def panels(self) -> Drawings:
        """Return the panel of BLEU."""
        return self.bleu.panels()


def score_dialog(source: Source, *, contexts: int | None = None, progress: Progress = SILENT) -> DialogScores:
    """Return the perplexity and BLEU of an opened run; see `bleu`. `SourceError` for a source that is not a run."""
    if not isinstance(source, ModelOnText) or not isinstance(source.model, RunModel):
        raise SourceError(Parameter("bleu"), f" is for runs, and {source.description['path']} is not one")
    run, head = source.model.run, source.head
    values = (run.model.config.head.name, run.config["seed"], run.model.parameter_count(), head.embedding_size)
    model = dict(zip(MODEL, values, strict=True))
    scores = perplexity(source, progress=progress)
    scored = bleu(
        run.model, source.model.corpus, split=source.description["split"], contexts=contexts, progress=progress
    )
    return DialogScores(scores, model, scored)
