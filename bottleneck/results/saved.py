"""What the JSON files of the commands hold, as pydantic reads it: the fields of the results' classes, and what figures
and pages need of everything else. Further keys are allowed; keys that were added later may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, NotRequired, get_type_hints

from annotated_types import Interval, Len
from pydantic import AfterValidator, ConfigDict, with_config
from typing_extensions import TypedDict

from ..core.json_file import Count, Magnitude, Size
from ..evaluation.dialog import Score
from ..heads.plif import SlopeStatistics
from ..measure.comparison import Comparison, Example
from ..measure.pairwise_kld import Histogram, PairwiseKLD
from ..spectrum import Precision, RankEstimate
from ..synthetic.cells import Fitted
from ..training.evaluate import Perplexity

Positive = Annotated[float, Interval(gt=0)]


@with_config(ConfigDict(extra="allow"))
class Source(TypedDict):
    """What was measured; some kinds say more, such as the number of columns that were dropped."""

    path: str
    kind: NotRequired[str | None]
    head: NotRequired[str | None]
    corpus: NotRequired[str | None]
    split: NotRequired[str | None]
    label: NotRequired[str | None]


class _Bound(TypedDict):
    raw: Count | None
    centered: Count | None
    why: str


class _Certificate(TypedDict):
    frobenius_relative_error: Magnitude
    driver: NotRequired[str | None]
    residual: NotRequired[Magnitude]
    error: NotRequired[Magnitude]


@dataclass(frozen=True, kw_only=True)
class SavedRank:
    """A rank report as `RankReport.to_dict` returns it."""

    source: Source
    contexts: Size
    vocab: Size
    embedding_size: Size | None
    bound: _Bound
    eps: Precision
    method: str
    method_why: str = ""
    rule: str
    rank: RankEstimate
    rank_centered: RankEstimate
    rank_by_rule: dict[str, Count]
    effective_rank: dict[str, Count | None]
    entropy_rank: Magnitude | None
    stable_rank: Magnitude
    certificate: _Certificate
    seconds: Magnitude
    peak_memory_bytes: Count
    version: str


class _Adaptive(TypedDict):
    dynamic: Positive
    cache: Positive


class _Validation(TypedDict):
    epoch: float
    valid_perplexity: Positive


class _Function(TypedDict):
    slopes: SlopeStatistics
    knots: list[float]
    values: list[float]


class DemoReport(TypedDict):
    """A report of the demo."""

    name: str
    seed: NotRequired[Count]
    parameters: Count
    valid_perplexity: NotRequired[Positive]
    test_perplexity: Positive
    train_seconds: Magnitude
    kld: float
    report: SavedRank
    adaptive: NotRequired[_Adaptive]
    history: NotRequired[list[_Validation]]
    function: NotRequired[Annotated[_Function, AfterValidator(lambda f: _same_lengths(f, f["knots"], f["values"]))]]


class _Cells(TypedDict):
    cells: list[Annotated[Fitted, AfterValidator(lambda fit: _check_fit(fit))]]


class _Curve(TypedDict):
    alpha: Positive
    vocab: Size
    ranks: list[Size]
    log_probs: Annotated[list[list[Annotated[float, Interval(le=0)]]], Len(3, 3)]


class _Concentrations(TypedDict):
    curves: list[Annotated[_Curve, AfterValidator(lambda c: _same_lengths(c, c["ranks"], *c["log_probs"]))]]


class _Bleu(TypedDict):
    scores: dict[str, Score]


class _Settings(TypedDict, total=False):
    head: str
    preset: str
    contexts: Size
    size: Size
    vocab: Size
    components: Size
    batch_size: Size
    plain: bool


class _Case(TypedDict, total=False):
    case: _Settings
    seconds: Magnitude
    memory_bytes: Count
    share: Magnitude
    epoch_seconds: Positive


class _Bench(TypedDict):
    cases: dict[str, Annotated[_Case, AfterValidator(lambda case: _check_case(case))]]


class _Transformer(TypedDict):
    vocab: Size
    size: Size
    head: str
    regime: Literal["parameters", "time"]
    seed: Count
    steps: Size
    equal_parameters: bool
    seconds_a_step: Magnitude
    bits_per_byte: Magnitude
    rank_interval: tuple[Count, Count]
    effective_rank: dict[str, Count]
    gradient_kept: Magnitude


class _Frozen(TypedDict):
    head: str
    seed: Count
    rate: Positive
    added_parameters: Count
    start_perplexity: NotRequired[Magnitude]
    perplexity: Positive
    steps: Size
    seconds_a_step: Positive
    course: Annotated[list[tuple[Size, Magnitude]], Len(1)]
    rank_interval: NotRequired[tuple[Count, Count]]
    effective_rank: NotRequired[dict[str, Count]]


def _same_lengths(value: Any, *lists: list[Any]) -> Any:
    if len(set(map(len, lists))) > 1:
        raise ValueError("its lists must have one length")
    return value


_SETTINGS = {
    "share": {"head", "contexts", "size", "vocab", "components"},
    "epoch_seconds": {"preset", "batch_size", "plain"},
}
"""Settings of the cases that tables show, by the key that only such a case has."""


def _check_case(case: _Case) -> _Case:
    for key, settings in _SETTINGS.items():
        if key in case and not settings <= case.get("case", _Settings()).keys():
            raise ValueError(f"its case must have {', '.join(sorted(settings))}")
    return case


def _check_fit(fit: Fitted) -> Fitted:
    measures = (fit["kl"], fit["mode_match"], *([fit["reachable"]] if fit["diverged"] else []))
    if any((measure is None) != fit["diverged"] for measure in measures):
        raise ValueError("a fit has measures unless it diverged")
    return fit


def _check_bins(histogram: Histogram) -> Histogram:
    edges, counts = histogram.edges, histogram.counts
    if len(edges) != len(counts) + 1 or sum(counts) < 1 or not all(low < high for low, high in pairwise(edges)):
        raise ValueError("it must hold counts between ascending edges")
    return histogram


def _saved(result: Any, *needed: str, **others: Any) -> Any:
    """Return the schema of a saved result: the fields of its class, of which the needed ones must be there.

    Args:
        result: a dataclass.
        needed: names of fields.
        others: fields that must be there with a type of their own.
    """
    fields = get_type_hints(result, include_extras=True)
    typed_dict: Any = TypedDict
    keys = {name: type_ if name in needed else NotRequired[type_] for name, type_ in fields.items()}
    return typed_dict(result.__name__, {**keys, **others})


_EXAMPLES: Any = list.__class_getitem__(_saved(Example, "context", "target", "nll", "top"))

SCHEMAS: dict[str, Any] = {
    "report": DemoReport,
    "cells": _Cells,
    "concentrations": _Concentrations,
    "comparison": _saved(
        Comparison, "nll", sources=tuple[Source, Source], first_better=_EXAMPLES, second_better=_EXAMPLES
    ),
    "divergence": _saved(
        PairwiseKLD,
        source=Source,
        pairs=Literal["all"] | Size,
        kld=float,
        histogram=NotRequired[Annotated[Histogram, AfterValidator(_check_bins)] | None],
    ),
    "rank": SavedRank,
    "evaluation": _saved(
        Perplexity, "how", source=Source, perplexity=Positive, seed=NotRequired[Count], bleu=NotRequired[_Bleu]
    ),
    "bench": _Bench,
    "transformer": _Transformer,
    "frozen": _Frozen,
}
"""Schema of each kind of file that figures and pages are made of."""
