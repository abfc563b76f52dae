"""Where one model beats another: the contexts with the largest difference in negative log-likelihood."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..core.checks import typed
from ..core.options import Opening, takes
from ..core.progress import Progress, reporting
from ..core.version import __version__
from ..errors import ConfigurationError, Parameter, SourceError
from ..results.base import Result, short_names
from ..results.tables import html_table
from ..sources import Source, open_source

PREDICTIONS = 5
"""Number of likeliest tokens shown for each model, as in table 14 of Yang et al. 2018."""
CONTEXT_TOKENS = 30
"""Number of tokens shown before the target."""
SENTENCE_TOKENS = 60
"""Largest number of tokens shown of the target's sentence, to either side; a text without lines is one sentence."""


@dataclass(frozen=True)
class Prediction:
    """One token that a model finds likely."""

    token: str
    probability: float


@dataclass(frozen=True)
class Example:
    """A context where one model gives the next token a much higher probability than the other."""

    row: int
    """Number of the context."""
    context: str
    """The last tokens before the target."""
    target: str
    """The token that follows the context."""
    reference: str
    """The sentence that holds the target; empty where the text is unknown."""
    nll: tuple[float, float]
    """Negative log-likelihoods of the first and the second model, in nats."""
    top: tuple[tuple[Prediction, ...], tuple[Prediction, ...]]
    """Each model's likeliest tokens."""

    @property
    def margin(self) -> float:
        """Nats by which the first model is better."""
        return self.nll[1] - self.nll[0]


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """A comparison of two models on one text."""

    sources: tuple[dict[str, Any], dict[str, Any]]
    contexts: int
    nll: tuple[float, float]
    """Mean negative log-likelihood of each, in nats."""
    first_better: tuple[Example, ...]
    """The contexts where the first model beats the second by most, largest margin first."""
    second_better: tuple[Example, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {**asdict(self), "version": __version__}

    def rows(self) -> list[tuple[str, str]]:
        """Return each model's loss and the contexts where it is better as labels and texts."""
        return [row for group in self._groups() for row in group]

    def _repr_html_(self) -> str:
        """Return the losses, and a table for each context."""
        return "".join(map(html_table, self._groups()))

    def _groups(self) -> list[list[tuple[str, str]]]:
        """Return the rows of the losses, and those of each context."""
        names = short_names(str(source["path"]) for source in self.sources)
        groups = [[(name, f"{nll:.4f} nats a token") for name, nll in zip(names, self.nll, strict=True)]]
        for name, examples in zip(names, (self.first_better, self.second_better), strict=True):
            for example in examples:
                rows = [(f"where {name} is better", f"… {example.context} ▸{example.target}◂")]
                rows += [("reference", example.reference)] if example.reference else []
                for model, nll, top in zip(names, example.nll, example.top, strict=True):
                    listed = ", ".join(f"{each.token!r} {each.probability:.2f}" for each in top)
                    rows.append((model, f"−log P {nll:.2f}; {listed}"))
                groups.append(rows)
        return groups


@takes(Opening)
@typed
def compare(
    first: Any, second: Any, *, examples: int = 5, progress: Progress | bool = False, **options: Unpack[Opening]
) -> Comparison:
    """Find where each of two models beats the other by the largest margin, in one pass (Yang et al. 2018, table 14).

    Args:
        first: a source as for `rank`, with known targets.
        second: another source with the same targets.
        examples: number of contexts to keep for each model.
        progress: where to report; ``True`` means standard error.
        options: how both are opened, see `Opening`.

    Raises:
        SourceError: when targets are unknown or differ between the two, or one has probability 0.
        ConfigurationError: for less than one example.
    """
    if examples < 1:
        raise ConfigurationError(Parameter("examples"), f" must be at least 1, not {examples}")
    sources = (open_source(first, **options), open_source(second, **options))
    targets = _same_targets(*sources)
    best: tuple[list[_Row], list[_Row]] = ([], [])
    totals = np.zeros(2)
    rows = min(source.rows_at_once() for source in sources)
    with reporting(progress).bar("comparing", len(targets), "contexts") as bar:
        for one, other in zip(*(source.blocks(source.ranges(rows)) for source in sources), strict=True):
            blocks = (one.log_probs, other.log_probs)
            places = targets[one.start : one.start + len(one.log_probs)]
            nll = np.stack([-block[np.arange(len(block)), places].astype(np.float64) for block in blocks])
            for source, losses in zip(sources, nll, strict=True):
                source.check_losses(losses, one.start)
            totals += nll.sum(1)
            for better, margin in zip(best, (nll[1] - nll[0], nll[0] - nll[1]), strict=True):
                for index in np.argsort(-margin, kind="stable")[:examples].tolist():
                    top = (_top(blocks[0][index]), _top(blocks[1][index]))
                    nlls = (float(nll[0, index]), float(nll[1, index]))
                    better.append(_Row(one.start + index, float(margin[index]), nlls, top))
                better.sort(key=lambda row: (-row.margin, row.number))
                del better[examples:]
            bar.advance(len(places))
    # Only the rows that are shown are turned into text.
    shown = [tuple(_example(row, sources, targets) for row in better if row.margin > 0) for better in best]
    first_nll, second_nll = (totals / len(targets)).tolist()
    descriptions = (dict(sources[0].description), dict(sources[1].description))
    return Comparison(descriptions, len(targets), (first_nll, second_nll), shown[0], shown[1])


@dataclass(frozen=True)
class _Row:
    number: int
    margin: float
    nll: tuple[float, float]
    top: tuple[list[tuple[int, float]], list[tuple[int, float]]]
    """Token and log-probability, likeliest first."""


def _same_targets(first: Source, second: Source) -> NDArray[np.int64]:
    for source in (first, second):
        if source.targets is None:
            raise SourceError(
                f"{source.description['path']} does not say which tokens came after its contexts: compare runs, stores "
                "that were dumped from them, or models whose output layer has a row for each token of the text"
            )
    assert first.targets is not None
    assert second.targets is not None
    if first.shape != second.shape or not np.array_equal(first.targets, second.targets):
        raise SourceError(
            f"{first.description['path']} and {second.description['path']} do not predict the same tokens: compare "
            "models with one vocabulary on the same ",
            Parameter("data"),
            ", ",
            Parameter("split"),
            " and ",
            Parameter("contexts"),
            ", with the same ",
            Parameter("context_length"),
            " and ",
            Parameter("stride"),
            ", and use ",
            Parameter("bos", "off"),
            " if only one of them begins its windows with a special token",
        )
    return first.targets


def _top(log_probs: NDArray[Any]) -> list[tuple[int, float]]:
    likeliest = np.argsort(-log_probs, kind="stable")[:PREDICTIONS]
    return [(int(token), float(log_probs[token])) for token in likeliest]


def _example(row: _Row, sources: tuple[Source, Source], targets: NDArray[np.int64]) -> Example:
    text = next((source.text for source in sources if source.text), None)
    names = text.tokens if text else lambda ids: [f"<{token}>" for token in ids]
    first, second = (
        tuple(
            Prediction(name, float(np.exp(log_prob)))
            for name, (_, log_prob) in zip(names([token for token, _ in listed]), listed, strict=True)
        )
        for listed in row.top
    )
    return Example(
        row.number,
        text.before(row.number, CONTEXT_TOKENS) if text else "",
        names([int(targets[row.number])])[0],
        text.sentence(row.number, SENTENCE_TOKENS) if text else "",
        row.nll,
        (first, second),
    )
