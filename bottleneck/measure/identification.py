"""Whose log-probabilities are these? The span of W, and the ellipse behind a final norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..core.checks import typed
from ..core.options import LayerOptions, Opening, takes
from ..core.progress import Progress, reporting
from ..errors import ConfigurationError, SourceError
from ..hugging_face.checks import NORM_ROUNDINGS
from ..hugging_face.final_norm import Ellipse
from ..results.base import Result, Results
from ..results.quantity import ANSWER, TABLE, Quantity
from ..sources import PartialSource, Source, TopK, labelled, open_source
from ..sources.output_weights import OutputWeights, output_weights
from ..sources.top_k import decimal_step
from ..spectrum import EPS
from ..spectrum.noise import FEWEST
from .divergences import SUMS

Matrix = NDArray[np.float64]

FLOORED = 0.01
"""Share of the tokens at a row's least number from which they are a floor."""
MOST_PARTIAL = 32
"""Rows with unseen tokens that are solved: each has tokens of its own, and so a factorization of its own."""
SAME, LAYER, STATES, NOT, UNKNOWN = (
    "same output layer and norm",
    "same output layer",
    "same output layer, other norm or edited states",
    "not this model",
    "cannot be told",
)
"""The verdicts."""


@dataclass(frozen=True)
class Measured:
    """A number that is 0 for the model itself, and what roundoff makes of it at most."""

    value: float
    """The number of the row that exceeds its limit by most."""
    limit: float


@dataclass(frozen=True, repr=False)
class Identification(Result, kind="identification"):
    """Whether rows of log-probabilities may be those of a model."""

    source: Mapping[str, Any]
    """The model: path, kind and head."""
    rows_from: Mapping[str, Any]
    """The rows."""
    verdict: str
    contexts: int
    """Number of rows that were used."""
    span: Measured | None
    """Norm of the row-centred rows outside the span of W, over theirs; ``None`` if too few tokens are seen."""
    unrelated: float
    """Expected norm outside the span of an unrelated W, √(1 − d/(M − 1))."""
    ellipse: Measured | None
    """|‖(h − β)/γ‖²/d − 1|; ``None`` without a final norm, or if W does not determine h."""
    on_ellipse: tuple[float, float] | None
    """Mean and standard deviation of ‖(h − β)/γ‖²/d over the rows."""
    mean: Measured | None
    """|mean of (h − β)/γ| behind a LayerNorm."""
    why: str
    """One sentence about the verdict."""

    def quantities(self) -> Iterator[Quantity]:
        """Yield the verdict and its evidence."""
        yield Quantity("verdict", self.verdict, "verdict", ANSWER | TABLE)
        yield Quantity("why", self.why, "why")
        yield Quantity("", None, "rows", text=f"{self.rows_from['path']}, {self.contexts:,} used")
        yield Quantity("", None, "model", text=self.name)
        tests = {"outside span(W)": self.span, "off the ellipse": self.ellipse, "mean": self.mean}
        for label, test in tests.items():
            if test:
                yield Quantity("", None, label, text=f"{test.value:.3g}, roundoff allows {test.limit:.2g}")
            if label != "mean":
                yield Quantity(
                    "", test and test.value, label, TABLE, (test and f"{test.value:.2g} (≤ {test.limit:.1g})") or ""
                )
        if self.on_ellipse:
            mean, spread = self.on_ellipse
            yield Quantity("", None, "‖(h − β)/γ‖²/d", text=f"{mean:.8f} ± {spread:.1g} over the rows")
        yield Quantity("unrelated", self.unrelated, "unrelated W", text=f"leaves {self.unrelated:.3g} outside")


@takes(Opening)
@typed
def identify(
    rows: Any,
    models: Any,
    *,
    layer: LayerOptions | None = None,
    progress: Progress | bool = False,
    **options: Unpack[Opening],
) -> Results[Identification]:
    r"""Say for each model whether rows of log-probabilities, or of logits, may come from it; nothing is trained.

    1. Row-centred rows are :math:`(h W^⊤ + b)(I - 11^⊤/M)`, so that they lie in the span of the centred W, up to b
       (Finlayson et al. 2024).
    2. Least squares give h, and behind a final norm :math:`\|(h - β)/γ\|^2 = d`, behind a LayerNorm also
       :math:`\sum (h - β)/γ = 0` (Finlayson et al. 2025, arXiv 2510.14086).

    Limits follow from roundoff. An entry a of the rows is off by at most :math:`½ (ε |a| + \text{step})`, and its
    product by :math:`½ \sqrt d ε' |w|^⊤|h|` (the probabilistic bound of Higham and Mary 2019; ε' is float32's). Such
    independent errors of norm δ move (h − β)/γ by :math:`δ \sqrt{\mathrm{tr}((γ W^⊤W γ)^{-1})/M}`, a root mean square,
    and the norm rounds a state up to four times to the type of the model. A finetuned body or a LoRA on it keeps both;
    a changed or quantized W breaks the first. Answers of a server, and rows hardly more than d, do not show whether
    their logits were in bfloat16: what that explains cannot be told. Tokens at a floor of 1 % of a row or more, masked
    tokens, and unseen ones of a `PartialSource` are left out.

    Args:
        rows: a source as for `rank`, such as a matrix file of log-probabilities.
        models: one model or W, several as a list, or a dictionary by label; see `sources.output_weights`.
        layer: options that open the models, see `LayerOptions`.
        progress: where to report; ``True`` means standard error.
        options: how the rows are opened, see `Opening`.

    Raises:
        SourceError: for rows or models that cannot be read, or an output layer that is not log-linear.
    """
    opened = open_source(rows, **options)
    opened.prepare(reporting(progress))
    several = isinstance(models, list | tuple | dict)
    named = labelled(models if several else [models])
    if not named:
        raise ConfigurationError("identify takes at least one model")
    results = []
    for label, model in named.items():
        result = _identified(opened, output_weights(model, **(layer or {})))
        results.append(result.named(label) if several else result)
    return Results(results)


def _identified(rows: Source, layer: OutputWeights) -> Identification:
    head, (_, M), d = layer.head, rows.shape, layer.weight.shape[1]
    name = layer.source["path"]
    if not head.has_linear_logits or head.function is not None:
        raise SourceError(f"{name} is not a log-linear output layer: rows of a mixture or soft-capped logits span more")
    unrelated = float(np.sqrt(max(0.0, 1 - d / max(M - 1, 1))))
    about: dict[str, Any] = {"source": layer.source, "rows_from": dict(rows.description), "unrelated": unrelated}
    nothing: dict[str, Any] = {"contexts": 0, "span": None, "ellipse": None, "on_ellipse": None, "mean": None}
    if len(layer.weight) < M:
        why = f"the rows have {M:,} tokens, and W has {len(layer.weight):,}"
        return Identification(**about, **nothing, verdict=NOT, why=why)
    norm = layer.ellipse()
    scale = getattr(head, "scale", 1.0) if norm is None else norm.scale
    W = scale * layer.weight[:M].double().cpu().numpy()
    if not np.isfinite(W).all():
        raise SourceError(f"W of {name} holds numbers that are not finite: its weights are damaged")
    bias = np.zeros(M) if layer.bias is None else scale * layer.bias[:M].double().cpu().numpy()
    bias = np.where(np.isfinite(bias), bias, 0.0)
    eps = EPS["float32"], max(EPS["float32"], EPS.get(layer.stored, 0.0))  # of the product, and of the states
    parts = list(_solve(rows, lambda tokens: _Layer(W[tokens], bias[tokens], norm, eps), d))
    if not parts:
        why = f"no row shows more than the {d + 1:,} tokens that d = {d:,} needs"
        return Identification(**about, **nothing, verdict=UNKNOWN, why=why)
    found = np.concatenate(parts, 2)
    span, ellipse, mean = (_worst(*test) for test in found)
    verdict, why = _verdict(span, ellipse, mean, unrelated, hidden=_may_hide_a_rounding(rows, d))
    known = found[1, 0][np.isfinite(found[1, 0])]
    on_ellipse = (1 + float(known.mean()), float(known.std())) if known.size else None
    return Identification(**about, verdict=verdict, contexts=found.shape[2], span=span, ellipse=ellipse,
                          on_ellipse=on_ellipse, mean=mean, why=why)  # fmt: skip


def _may_hide_a_rounding(rows: Source, d: int) -> bool:
    """Return whether rows do not show how coarsely their logits were rounded: noise stands behind d directions."""
    if isinstance(rows, PartialSource):
        return isinstance(rows, TopK)
    return rows.precision.assumed and rows.shape[0] <= d + 1 + FEWEST


def _worst(values: Matrix, limits: Matrix) -> Measured | None:
    values = np.abs(values)
    known = np.isfinite(values) & np.isfinite(limits)
    if not known.any():
        return None
    place = int(np.argmax(np.where(known, values / np.where(limits > 0, limits, 1e-300), -1)))
    return Measured(float(values[place]), float(limits[place]))


def _verdict(
    span: Measured | None, ellipse: Measured | None, mean: Measured | None, unrelated: float, *, hidden: bool
) -> tuple[str, str]:
    if span is None or span.limit >= unrelated:
        return UNKNOWN, "the rows are so coarse, or so few tokens are seen, that any W would fit"
    if hidden and span.limit < span.value <= EPS["bfloat16"] / np.sqrt(12):  # a root mean square
        return (
            UNKNOWN,
            "logits in bfloat16 would leave as much outside the span of W, and the rows do not show their type",
        )
    if span.value > span.limit:
        close = "; a changed or quantized version of this W would leave as little" if span.value < unrelated / 2 else ""
        return NOT, f"the rows leave the span of W by more than roundoff{close}"
    if ellipse is None:
        return LAYER, "the rows lie in the span of W; the model shows no final norm that h could be tested with"
    if ellipse.limit >= 1:
        return LAYER, "the rows lie in the span of W; they are too coarse to tell the norm"
    off = [each for each in (ellipse, mean) if each is not None and each.value > each.limit]
    if off:
        return STATES, "the rows lie in the span of W, and the states do not lie on the ellipse of the norm"
    return SAME, "the rows lie in the span of W, and the states on the ellipse of the norm"


def _entries(rows: Source, d: int) -> Iterator[tuple[Matrix, NDArray[np.bool_], Matrix]]:
    """Yield the rows in blocks, (n, M) each: numbers, whether each is seen, and the most by which it is off.

    What stands at a floor, or is masked, is unseen.
    """
    if isinstance(rows, PartialSource):
        for part in rows.parts():
            yield part.log_probs, part.seen, np.broadcast_to(part.error, part.log_probs.shape)
        return
    eps = rows.precision
    inferred = np.sqrt(12) * (eps.noise or 0.0) if eps.rounding is None else eps.rounding.step
    inferred = inferred if rows.shape[0] > d + 1 + FEWEST else 0.0
    for block in rows.blocks():
        values = block.log_probs.astype(np.float64)
        seen = values > values.min(1, keepdims=True)
        seen[(~seen).mean(1) < FLOORED] = True
        seen &= np.isfinite(values)
        steps = [_step(row[tokens], inferred) for row, tokens in zip(values, seen, strict=True)]
        size = np.maximum(np.abs(values), eps.size or 0.0)
        yield values, seen, (eps.value * size + np.array(steps)[:, None]) / 2


def _step(values: Matrix, inferred: float) -> float:
    """Return the step of the grid that the numbers of a row, (m,), may lie on.

    It is the median gap where most numbers are repeated, and elsewhere the inferred step, but at most the mean gap of
    different numbers: a coarser grid would hold fewer.
    """
    different, inferred = np.unique(values), max(inferred, decimal_step(values))
    if len(different) < 2:
        return 0.0
    gaps = np.diff(different)
    step = min(inferred, float(gaps.mean()))
    return max(step, float(np.median(gaps))) if len(different) < len(values) / 2 else step


def _solve(rows: Source, layer: Callable[[Any], _Layer], d: int) -> Iterator[Matrix]:
    """Yield what blocks of whole rows say, and some rows with unseen tokens that show d + 2 tokens or more.

    ``layer`` returns the output layer of some tokens.
    """
    partial, whole = 0, None
    for values, seen, error in _entries(rows, d):
        complete = seen.all(1)
        if complete.any():
            whole = whole or layer(slice(None))
            yield whole.solve(values[complete], error[complete])
        for row in np.flatnonzero(~complete & (seen.sum(1) >= d + 2))[: MOST_PARTIAL - partial]:
            partial += 1
            tokens = seen[row]
            yield layer(tokens).solve(values[None, row, tokens], error[None, row, tokens])


class _Layer:
    """The centred output embeddings of some tokens, factorized."""

    def __init__(self, W: Matrix, bias: Matrix, ellipse: Ellipse | None, eps: tuple[float, float]) -> None:
        self._W, self._bias, self._ellipse = W - W.mean(0), bias - bias.mean(), ellipse
        self._product_eps, self._state_eps = eps
        self._sizes = np.abs(W).T @ np.abs(W)
        gram = self._W.T @ self._W
        values, vectors = np.linalg.eigh(gram)
        kept = values > len(W) * EPS["float64"] * values[-1]
        self._inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
        self._moves = 0.0  # norm of the change of (h − β)/γ, over that of independent errors of the rows
        if ellipse is not None and kept.all():
            scaled = np.linalg.eigvalsh(gram * np.outer(ellipse.gamma, ellipse.gamma))
            self._moves = float(np.sqrt((1 / scaled).sum() / len(W))) if scaled[0] > 0 else 0.0

    def solve(self, entries: Matrix, error: Matrix) -> Matrix:
        """Return what rows of these tokens say, (n, m), given the most by which each entry is off: (3, 2, n).

        They are a value and its limit for each test: the span, the ellipse and the mean, NaN without an ellipse.
        """
        result = np.full((3, 2, len(entries)), np.nan)
        centered = entries - entries.mean(1, keepdims=True)
        target = centered - self._bias
        hidden = target @ self._W @ self._inverse
        hidden += (target - hidden @ self._W.T) @ self._W @ self._inverse  # the inverse of a Gram matrix loses digits
        norms = np.linalg.norm(centered, axis=1)
        entry = np.linalg.norm(error, axis=1)
        d = self._W.shape[1]
        size = np.sqrt(((np.abs(hidden) @ self._sizes) * np.abs(hidden)).sum(1))  # norm of |W| |h|
        product = np.sqrt(d) * self._product_eps / 2 * size
        moved = entry + product + SUMS * norms
        outside = np.linalg.norm(target - hidden @ self._W.T, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            result[0] = outside / norms, moved / norms
        if self._ellipse is None or not self._moves:
            return result
        n = (hidden - self._ellipse.beta) / self._ellipse.gamma
        off = moved * self._moves
        off += NORM_ROUNDINGS * self._state_eps / 2 * np.linalg.norm(hidden / self._ellipse.gamma, axis=1)
        square_limit = (2 * np.linalg.norm(n, axis=1) * off + off**2) / d + self._ellipse.eps
        result[1] = (n**2).mean(1) - 1, square_limit
        if self._ellipse.centers:
            result[2] = n.mean(1), off / np.sqrt(d)
        return result
