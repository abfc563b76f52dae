"""What a file of each kind of saved results must hold, as pydantic reads it; further keys are allowed."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from annotated_types import Interval, Len
from pydantic import FiniteFloat
from typing_extensions import TypedDict

from ..core.json_file import Count

Size = Annotated[int, Interval(ge=1, lt=2**53)]
Positive = Annotated[FiniteFloat, Interval(gt=0)]
Pair = Annotated[list[FiniteFloat], Len(2, 2)]


class Source(TypedDict):
    """What was measured."""

    path: str
    kind: NotRequired[str | None]
    head: NotRequired[str | None]
    corpus: NotRequired[str | None]
    split: NotRequired[str | None]
    label: NotRequired[str | None]


class Estimate(TypedDict):
    """A numerical rank with its evidence."""

    value: Count
    low: Count
    high: Count
    determinate: bool
    tolerance: FiniteFloat
    sigma_1: FiniteFloat
    sigma_r: FiniteFloat | None
    sigma_next: FiniteFloat | None
    gap: FiniteFloat | None
    at_least: NotRequired[bool]
    doubt: NotRequired[str]


class Bound(TypedDict):
    """The bounds that algebra gives."""

    raw: Count | None
    centered: Count | None
    why: str


class Eps(TypedDict):
    """The roundoff of the entries."""

    value: FiniteFloat
    dtype: str | None
    assumed: bool


class Certificate(TypedDict):
    """What certifies the singular values."""

    frobenius_relative_error: FiniteFloat
    driver: NotRequired[str | None]
    residual: NotRequired[FiniteFloat]
    error: NotRequired[FiniteFloat]


class Rank(TypedDict):
    """A rank report."""

    source: Source
    contexts: Size
    vocab: Size
    embedding_size: Size | None
    bound: Bound
    eps: Eps
    method: str
    method_why: NotRequired[str]
    rule: str
    rank: Estimate
    rank_centered: Estimate
    rank_by_rule: dict[str, Count]
    effective_rank: dict[str, Count | None]
    entropy_rank: FiniteFloat | None
    stable_rank: FiniteFloat
    certificate: Certificate
    seconds: FiniteFloat
    peak_memory_bytes: Count
    version: str


class Adaptive(TypedDict):
    """Perplexities of dynamic evaluation and of a cache."""

    dynamic: FiniteFloat
    cache: FiniteFloat


class Validation(TypedDict):
    """A validation during training."""

    epoch: FiniteFloat
    valid_perplexity: FiniteFloat


class Function(TypedDict):
    """Points of a head's piecewise linear function."""

    slopes: dict[str, FiniteFloat]
    knots: list[FiniteFloat]
    values: list[FiniteFloat]


class Report(TypedDict):
    """A report of the demo."""

    name: str
    seed: NotRequired[Count]
    parameters: Count
    valid_perplexity: NotRequired[FiniteFloat]
    test_perplexity: FiniteFloat
    train_seconds: FiniteFloat
    kld: FiniteFloat
    report: Rank
    adaptive: NotRequired[Adaptive]
    history: NotRequired[list[Validation]]
    function: NotRequired[Function]


class Reachable(TypedDict):
    """Measures at the best context vectors of some contexts."""

    kl: FiniteFloat
    mode_match: FiniteFloat
    fitted_kl: FiniteFloat
    fitted_mode_match: FiniteFloat
    largest_gap: FiniteFloat


class Cell(TypedDict):
    """One fit to random distributions."""

    model: str
    alpha: FiniteFloat
    vocab: Size
    dim: Size
    contexts: Size
    seed: Count
    mode_match: FiniteFloat | None
    kl: FiniteFloat | None
    converged: bool
    diverged: bool
    seconds: FiniteFloat
    reachable: Reachable | None


class Cells(TypedDict):
    """Fits to random distributions."""

    cells: list[Cell]


class Curve(TypedDict):
    """Sorted log-probabilities at one concentration."""

    alpha: FiniteFloat
    vocab: Size
    ranks: list[Count]
    log_probs: Annotated[list[list[FiniteFloat]], Len(3, 3)]


class Concentrations(TypedDict):
    """Sorted log-probabilities of Dirichlet distributions."""

    curves: list[Curve]


class Prediction(TypedDict):
    """A token that a model finds likely."""

    token: str
    probability: FiniteFloat


class Example(TypedDict):
    """A context where two models disagree."""

    context: str
    target: str
    nll: Pair
    top: Annotated[list[list[Prediction]], Len(2, 2)]


class Comparison(TypedDict):
    """A comparison of two models."""

    sources: Annotated[list[Source], Len(2, 2)]
    nll: Pair
    first_better: list[Example]
    second_better: list[Example]


class Histogram(TypedDict):
    """How often values lie in bins."""

    edges: Annotated[list[FiniteFloat], Len(2)]
    counts: Annotated[list[Count], Len(1)]


class Divergence(TypedDict):
    """An expected pairwise divergence."""

    source: Source
    pairs: Literal["all"] | Size
    kld: FiniteFloat
    histogram: NotRequired[Histogram]


class Score(TypedDict):
    """A mean with its interval."""

    mean: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat


class Bleu(TypedDict):
    """BLEU scores by name."""

    scores: dict[str, Score]


class Evaluation(TypedDict):
    """Perplexity, and BLEU of responses."""

    source: Source
    seed: NotRequired[Count]
    how: str
    perplexity: FiniteFloat
    bleu: NotRequired[Bleu]


class Case(TypedDict, total=False):
    """One timed case."""

    case: dict[str, Any]
    seconds: FiniteFloat
    memory_bytes: Count
    share: FiniteFloat
    epoch_seconds: Positive


class Bench(TypedDict):
    """Timed cases by name."""

    cases: dict[str, Case]


class Transformer(TypedDict):
    """One run of the study of small transformers with several output layers."""

    vocab: Size
    size: Size
    head: str
    regime: Literal["parameters", "time"]
    seed: Count
    steps: Size
    equal_parameters: bool
    seconds_a_step: FiniteFloat
    bits_per_byte: FiniteFloat
    rank_interval: Annotated[list[Count], Len(2, 2)]
    effective_rank: dict[str, Count | None]
    gradient_kept: FiniteFloat


SCHEMAS: dict[str, Any] = {
    "report": Report,
    "cells": Cells,
    "concentrations": Concentrations,
    "comparison": Comparison,
    "divergence": Divergence,
    "rank": Rank,
    "evaluation": Evaluation,
    "bench": Bench,
    "transformer": Transformer,
}
"""Schema of each kind of file that figures and pages are made of."""
