"""Measure sources for a page: rank, pairwise KL divergence, and where they disagree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.progress import SILENT, Progress
from ..errors import BottleneckError, Sentence
from ..evaluation import perplexity
from ..measure import compare, kld, rank
from ..sources import Source
from ..training.evaluate import perplexity_of
from .contents import Contents, Model, Plain


def measure_sources(
    sources: Mapping[str, Source],
    *,
    pairs: int = 5000,
    examples: int = 3,
    reference: str | None = None,
    progress: Progress = SILENT,
    **how: Any,
) -> Contents:
    """Measure sources, and compare each with a reference.

    A source that cannot be compared, or has no KL divergence, is measured as far as possible; what is missing is
    listed.

    Args:
        sources: opened sources by the labels that the page gives them.
        pairs: number of pairs of contexts in the histogram of KL divergences, at least 2.
        examples: number of contexts to show for each model of a comparison.
        reference: label of the source that the others are compared with; by default the first.
        progress: where to report.
        how: options of `rank` for each decomposition, such as ``max_memory``.

    Raises:
        BottleneckError: as `rank` does.
    """
    comparisons: list[Plain] = []
    missing: list[str] = []
    losses: dict[str, float] = {}
    first = next(iter(sources)) if reference is None else reference
    for label, other in sources.items():
        if label == first:
            continue
        try:
            comparison = compare(sources[first], other, examples=examples, progress=progress).to_dict()
        except BottleneckError as error:
            missing.append(Sentence("no comparison: ", error))
            continue
        pair = zip(comparison["sources"], (first, label), strict=True)
        comparisons.append({**comparison, "sources": [{**each, "label": name} for each, name in pair]})
        if comparison["nll"] and sources[first].shape == other.shape:  # no token was cut
            losses |= zip((first, label), comparison["nll"], strict=True)
    models = []
    for label, source in sources.items():
        report = rank(source, progress=progress, **how).named(label)
        numbers: dict[str, float] = {}
        drawn = None
        try:
            numbers = _perplexity(source, losses.get(label), progress)
        except BottleneckError as error:
            missing.append(Sentence("no perplexity: ", error))
        try:
            numbers[f"{_split(source)} pairwise KL"] = kld(source, progress=progress).kld
            drawn = kld(source, pairs=pairs, progress=progress).to_dict()
        except BottleneckError as error:
            missing.append(Sentence("no pairwise KL divergence: ", error))
        models.append(Model(report, "measured for this page", "", numbers, drawn))
    return Contents(tuple(models), tuple(comparisons), tuple(missing))


def _split(source: Source) -> str:
    return str(source.description.get("split") or "test")


def _perplexity(source: Source, loss: float | None, progress: Progress) -> dict[str, float]:
    """Return the perplexity, if the targets are known, given the mean loss in nats where that is known."""
    if loss is None and source.targets is not None:
        loss = perplexity(source, progress=progress).loss
    return {} if loss is None else {f"{_split(source)} perplexity": perplexity_of(loss)}
