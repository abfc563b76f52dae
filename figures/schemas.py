"""What the JSON files of the commands hold, as pydantic reads it: the fields of the results' classes, and what figures
and pages need of everything else. Further keys are allowed; keys that were added later may be missing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from annotated_types import Interval, Len
from pydantic import AfterValidator
from typing_extensions import TypedDict

from softmax_bottleneck.core.json_file import Count, Magnitude, Size, check_schema
from softmax_bottleneck.evaluation.dialog import DialogScores
from softmax_bottleneck.heads.plif import SlopeStatistics
from softmax_bottleneck.measure.comparison import Comparison
from softmax_bottleneck.measure.divergence_report import PairwiseKLD
from softmax_bottleneck.measure.report import Description, RankReport
from softmax_bottleneck.results.base import Result
from softmax_bottleneck.synthetic.cells import Fitted
from softmax_bottleneck.training.evaluate import Perplexity

Positive = Annotated[float, Interval(gt=0)]


def _saved(result: type[Result]) -> Any:
    """Return the schema of a saved result: plain values that its class reads."""
    return Annotated[dict[str, Any], AfterValidator(lambda values: (result.from_dict(values), values)[1])]


Rank: Any = _saved(RankReport)


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
    report: Rank
    history: NotRequired[list[_Validation]]
    function: NotRequired[Annotated[_Function, AfterValidator(lambda f: _same_lengths(f, f["knots"], f["values"]))]]


class Sourced(TypedDict):
    """What any result may say of what was measured."""

    source: NotRequired[Description]
    seed: NotRequired[Count]


class _Cells(TypedDict):
    cells: list[Annotated[Fitted, AfterValidator(lambda fit: _check_fit(fit))]]


class _Curve(TypedDict):
    alpha: Positive
    vocab: Size
    ranks: list[Size]
    log_probs: Annotated[list[list[Annotated[float, Interval(le=0)]]], Len(3, 3)]


class _Concentrations(TypedDict):
    curves: list[Annotated[_Curve, AfterValidator(lambda c: _same_lengths(c, c["ranks"], *c["log_probs"]))]]


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
    cases: dict[str, _Case]


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


def checked(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a file that says its kind; `ValueError` where it is not that of its kind."""
    check_schema(content, Sourced)
    check_schema(content, SCHEMAS.get(content.get("kind", ""), dict[str, Any]))
    return content


def _same_lengths(value: Any, *lists: list[Any]) -> Any:
    if len(set(map(len, lists))) > 1:
        raise ValueError("its lists must have one length")
    return value


def _check_fit(fit: Fitted) -> Fitted:
    measures = (fit["kl"], fit["mode_match"], *([fit["reachable"]] if fit["diverged"] else []))
    if any((measure is None) != fit["diverged"] for measure in measures):
        raise ValueError("a fit has measures unless it diverged")
    return fit


_RESULTS = {result.kind: _saved(result) for result in (Comparison, DialogScores, PairwiseKLD, Perplexity, RankReport)}


class _Several(TypedDict):
    results: list[Annotated[dict[str, Any], AfterValidator(lambda each: checked(each))]]


SCHEMAS: dict[str, Any] = {
    **_RESULTS,
    "results": _Several,
    "demo": DemoReport,
    "synthetic": _Cells,
    "concentrations": _Concentrations,
    "bench": _Bench,
    "transformer-study": _Transformer,
    "frozen-body": _Frozen,
}
"""Schema of each kind of file that figures and pages are made of."""
