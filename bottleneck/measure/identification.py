"""Whose log-probabilities are these? The span of W, and the ellipse behind a final norm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch

from ..core.checks import typed
from ..core.options import LayerOptions, MeasurementOptions, takes
from ..errors import ConfigurationError, Function, OutputError, Sentence, SourceError
from ..hugging_face.checks import NORM_ROUNDINGS
from ..hugging_face.final_norm import Ellipse
from ..language_models.layer import OutputWeights
from ..results.base import Drawings, Result, Results
from ..results.quantity import TABLE, Quantity
from ..sources import PartialSource, Source, TopK, is_several, labelled
from ..sources.measurement import prepared
from ..sources.output_weights import check_bias, output_weights
from ..spectrum import EPS
from ..spectrum.noise import FEWEST
from .entries import Entries
from .explanation import CLEAR, CLOSE, Explanation, explain, noise_seen, used_directions
from .span import Matrix, RowFits, Span

SAME, LAYER, EDITED, STATES, NOT, UNKNOWN = (
    "same output layer and norm",
    "same output layer",
    "same output layer, edited logits",
    "same output layer, other norm or edited states",
    "not this model",
    "cannot be told",
)
"""The verdicts."""
COMPARE = Sentence(Function("compare"), " measures how far the model's distributions are from the rows")
HIDDEN = "logits in bfloat16 would leave as much outside the span of W"
"""Begins the reason of a verdict on rows that do not show their type."""
SEEN = 0.5
"""Least size of what rows hold beyond the directions of a layer, over that of noise that is seen in them, from which
they hold it: of rounded rows 0.65 and more was seen, and of rows whose last directions look like noise next to none."""
NEXT = {
    STATES: "another checkpoint or finetuned body with this output layer may fit",
    NOT: "other models that it may be can be named in the same call",
    UNKNOWN: "more rows, or log-probabilities in float32 of logits that nobody edited, may tell",
}
"""What to do after a verdict; `COMPARE` after the others."""


@dataclass(frozen=True)
class Test:
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
    span: Test | None
    """Norm of the row-centred rows outside the span of W, over theirs; ``None`` if too few tokens are seen."""
    unrelated: float
    """Expected norm outside the span of an unrelated W, √(1 − d/(M − 1))."""
    ellipse: Test | None
    """|‖(h − β)/γ‖²/d − 1| of the middle row; ``None`` without a final norm, or if W does not determine h."""
    on_ellipse: tuple[float, float] | None
    """Mean and standard deviation of ‖(h − β)/γ‖²/d over the rows."""
    mean: Test | None
    """|mean of (h − β)/γ| of the middle row, behind a LayerNorm."""
    why: str
    """One sentence about the verdict."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentence about the verdict, for a table of several models."""
        return (self.why,)

    def quantities(self) -> Iterator[Quantity]:
        """Yield the verdict and its evidence."""
        yield Quantity("", self.verdict, "verdict", TABLE)
        yield Quantity("", None, "verdict", text=f"{self.verdict}: {self.why}")
        yield Quantity("", None, "rows", text=f"{self.rows_from['path']}, {self.contexts:,} used")
        yield Quantity("", None, "model", text=self.name)
        for label, test in self._tests().items():
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
        following = NEXT.get(self.verdict, COMPARE) if self.contexts else "rows that show more tokens may tell"
        yield Quantity("next", following, "next")

    def _tests(self) -> dict[str, Test | None]:
        return {"outside span(W)": self.span, "off the ellipse": self.ellipse, "mean": self.mean}

    def panels(self) -> Drawings:
        """Return a panel of each test's number beside what roundoff allows; `OutputError` if nothing was tested."""
        from ..results.plotting.measures import draw_limits

        tests = {label: (test.value, test.limit) for label, test in self._tests().items() if test}
        if not tests:
            raise OutputError(f"nothing was tested, so there is nothing to draw: {self.why}")
        return [partial(draw_limits, tests=tests)]


@takes(MeasurementOptions)
@typed
def identify(
    rows: Any,
    models: Any,
    *,
    layer: LayerOptions | None = None,
    **options: Unpack[MeasurementOptions],
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
    their logits were in bfloat16: what that explains cannot be told. Noise that is seen in the rows widens the limits
    only if they hold it beyond the d directions of a layer, its bias and one more.

    Entries that replaced others are left out: a row's lowest number, numbers that occur far more often than those next
    to them, what is unseen in a `PartialSource`, and entries without which a row fits. A bias that W lacks is the same
    in all rows, and leaves their differences in the span. Only most of the rows, never a single one, say "not".

    Args:
        rows: a source as for `rank`, such as a matrix file of log-probabilities.
        models: one model or W, several as a list, or a dictionary by label; see `sources.output_weights`.
        layer: options that open the models, see `LayerOptions`.
        options: how the rows are opened, and where to report, see `MeasurementOptions`.

    Raises:
        SourceError: for rows or models that cannot be read, or an output layer that is not log-linear.
    """
    if is_several(rows):
        raise ConfigurationError("identify takes the rows first, one source, and then one model or several")
    (source,) = prepared([rows], options)
    several = isinstance(models, list | tuple | dict)
    named = labelled(models if several else [models])
    if not named:
        raise ConfigurationError("identify takes at least one model")
    if options.get("head") is None:
        check_bias(named.values(), (layer or {}).get("bias"))
    results = []
    for label, model in named.items():
        result = _identified(source, output_weights(model, **(layer or {})))
        results.append(result.named(label) if several else result)
    return Results(results)


def _identified(rows: Source, layer: OutputWeights) -> Identification:
    """Test a layer as it is stored, and if it does not fit as a model that runs in a narrower type has it."""
    name, M = layer.source["path"], rows.shape[1]
    if not layer.head.has_linear_logits or layer.head.function is not None:
        raise SourceError(f"{name} is not a log-linear output layer: rows of a mixture or soft-capped logits span more")
    if layer.weight.shape[1] == M:
        raise SourceError(f"{name} has as many columns as the rows have tokens, {M:,}: give the rows before the model")
    if not layer.weight[:M].isfinite().all():
        raise SourceError(f"W of {name} holds numbers that are not finite: its weights are damaged")
    if (layer.weight[0] == layer.weight[:M]).all():
        raise SourceError(f"all rows of W of {name} are equal: it gives all tokens the same logits")
    norm, entries = layer.ellipse(), Entries.of(rows, (len(layer.weight), layer.weight.shape[1]))
    found = _tested(rows, entries, layer, norm)
    for dtype in (torch.bfloat16, torch.float16):
        W, b = (each if each is None else each.to(dtype).float() for each in (layer.weight, layer.bias))
        if found.verdict not in (NOT, UNKNOWN) or found.span is None or W is None or torch.equal(W, layer.weight):
            continue
        stored = str(dtype).removeprefix("torch.")
        narrow = _tested(rows, entries, replace(layer, weight=W, bias=b, stored=stored), norm)
        is_closer = narrow.span is not None and 2 * narrow.span.value < found.span.value
        may_be = found.verdict == NOT and narrow.why.startswith(HIDDEN)
        if narrow.verdict != NOT and (narrow.verdict != UNKNOWN or is_closer or may_be):
            return replace(narrow, why=f"{narrow.why}; W is in {stored} here, as in a model that runs in it")
    return found


def _tested(rows: Source, seen: Entries | None, layer: OutputWeights, norm: Ellipse | None) -> Identification:
    head, (_, M), d = layer.head, rows.shape, layer.weight.shape[1]
    unrelated = float(np.sqrt(max(0.0, 1 - d / max(M - 1, 1))))
    about: dict[str, Any] = {"source": layer.source, "rows_from": dict(rows.description), "unrelated": unrelated}
    nothing: dict[str, Any] = {"contexts": 0, "span": None, "ellipse": None, "on_ellipse": None, "mean": None}
    differ = len(layer.weight) != M and not isinstance(rows, TopK)  # which does not tell how many tokens there are
    vocabularies = f"the vocabularies differ: the rows have {M:,} tokens, and W has {len(layer.weight):,}"
    scale = getattr(head, "scale", 1.0) if norm is None else norm.scale
    W = scale * layer.weight[:M].double().cpu().numpy()
    bias = np.zeros(len(W)) if layer.bias is None else scale * layer.bias[:M].double().cpu().numpy()
    if seen is None:
        why = f"no row shows more than the {d + 1:,} tokens that d = {d:,} needs, and different numbers"
        why += f"; {vocabularies}" if differ else ""
        return Identification(**about, **nothing, verdict=UNKNOWN, why=why)
    has_more, entries = seen.seen[:, len(W) :].any(), seen.without(np.where(np.isfinite(bias), bias, 0.0))
    span = Span(W, EPS["float32"])
    found = explain(entries, span, d)
    state_eps = max(EPS["float32"], EPS.get(layer.stored, 0.0))
    squares, means = _on_ellipse(found.fit, span, None if found.edit or found.doubt else norm, state_eps)
    measured = [_at(found.fit.outside, found.fit.limit), _at(*squares, share=0.5), _at(*means, share=0.5)]
    rounding = 0.0
    if _may_hide_a_rounding(rows, d, entries):
        logits = np.where(found.fit.seen, span.hidden(found.fit) @ W.T + np.where(np.isfinite(bias), bias, 0.0), np.nan)
        sizes = np.maximum(np.sqrt(np.nanmean(logits**2, 1)), 1)  # of what is rounded: logits, or logs of probabilities
        # At the beginning of its binade a number is off by ε/√12, a root mean square, and a sum of two such by √2 more.
        rounding = EPS["bfloat16"] / np.sqrt(6) * float(np.median(sizes / np.nanstd(logits, 1)))
    verdict, why = _verdict(found, *measured[1:], rounding=rounding)
    if entries.noisy and verdict not in (NOT, UNKNOWN) and noise_seen(entries, found.fit, span, d) < SEEN:
        plain = _tested(rows, Entries.of(rows, (len(layer.weight), d), noise=False), layer, norm)
        why = "the rows do not show whether they were rounded, or W was changed"
        return replace(plain, verdict=UNKNOWN, why=why) if plain.verdict == NOT else plain
    if verdict in (LAYER, STATES, EDITED) and (used := used_directions(found, span)) is not None:
        verdict, why = UNKNOWN, f"the rows lie in the span of W, and use {used:,} of its {span.basis.shape[1] - 1:,} "
        why += "directions alone, as those of a pruned or low-rank version of it do"
    apart = int((np.abs(squares[0]) > CLEAR * squares[1]).sum())
    if verdict == SAME and apart:
        why += f", but for {apart:,} of {len(entries.rows):,} rows, whose states have another size"
    if verdict == STATES and norm is not None and (size := _common_size(squares, norm)):
        why += f"; those of all rows are {size:.4g} times as long, as at a temperature of {1 / size:.4g}"
    is_whole = not isinstance(rows, PartialSource)
    if is_whole and (coarse := rows.precision.coarse) and np.isfinite(coarse.step) and verdict in (SAME, LAYER, STATES):
        why += f"; the rows look rounded in steps of about {coarse.step:.2g}, or hold as much noise, which hides small "
        why += "changes of W"
    verdict = EDITED if has_more and verdict in (SAME, LAYER) else verdict  # by tokens that were added
    if (verdict in (NOT, UNKNOWN) and differ) or has_more:
        why += f"; {vocabularies}"
    known = squares[0][np.isfinite(squares[0])]
    on_ellipse = (1 + float(known.mean()), float(known.std())) if known.size else None
    return Identification(**about, verdict=verdict, contexts=len(entries.rows), span=measured[0], ellipse=measured[1],
                          on_ellipse=on_ellipse, mean=measured[2], why=why)  # fmt: skip


def _common_size(squares: Matrix, norm: Ellipse) -> float | None:
    """Return how much longer than the norm leaves them all states are, or ``None`` if rows differ or β is added."""
    known = np.isfinite(squares[0])
    ratios = 1 + squares[0, known]
    middle = float(np.median(ratios)) if known.any() else 0.0
    alike = np.abs(ratios - middle) <= CLEAR * squares[1, known] * middle
    return float(np.sqrt(middle)) if middle > 0 and alike.all() and not np.any(norm.beta) else None


def _may_hide_a_rounding(rows: Source, d: int, entries: Entries) -> bool:
    """Return whether rows do not show how coarsely their logits were rounded: noise stands behind d directions."""
    if isinstance(rows, PartialSource):
        return isinstance(rows, TopK)
    T, _ = rows.precision.distinct or rows.shape
    return rows.precision.assumed and (d + 1 + FEWEST >= T or entries.replaced)


def _at(values: Matrix, limits: Matrix, *, share: float = 1.0) -> Test | None:
    """Return the value and the limit of one row: a share of the rows keeps its limits by more; 1 is the worst row."""
    values = np.abs(values)
    known = np.isfinite(values) & np.isfinite(limits)
    if not known.any():
        return None
    order = np.argsort(np.where(known, values / np.where(limits > 0, limits, 1e-300), np.inf))
    place = order[int(share * (known.sum() - 1))]
    return Test(float(values[place]), float(limits[place]))


def _on_ellipse(fit: RowFits, span: Span, ellipse: Ellipse | None, state_eps: float) -> Matrix:
    """Return values and limits of the tests of the ellipse and of the mean, (2, 2, n), NaN without an ellipse."""
    result = np.full((2, 2, len(fit.outside)), np.nan)
    if ellipse is None or len(set(span.to_hidden.shape)) > 1:
        return result
    hidden, d = span.hidden(fit), len(span.to_hidden)
    n = (hidden - ellipse.beta) / ellipse.gamma
    off = fit.moved * fit.spread * np.linalg.norm(span.to_hidden / ellipse.gamma[:, None])
    off += NORM_ROUNDINGS * state_eps / 2 * np.linalg.norm(hidden / ellipse.gamma, axis=1)
    result[0] = (n**2).mean(1) - 1, (2 * np.linalg.norm(n, axis=1) * off + off**2) / d + ellipse.eps
    if ellipse.centers:
        result[1] = n.mean(1), off / np.sqrt(d)
    return result


def _verdict(found: Explanation, ellipse: Test | None, mean: Test | None, *, rounding: float) -> tuple[str, str]:
    fit = found.fit
    if np.median(fit.limit) >= np.median(np.sqrt(1 - (fit.coefficients.shape[1] - 1) / (fit.seen.sum(1) - 1))):
        return UNKNOWN, "the rows are so coarse, or so few tokens are seen, that any W would fit"
    if not fit.fits.all() and min(np.median(fit.outside), found.least) <= rounding:
        return UNKNOWN, f"{HIDDEN}, and the rows do not show their type"
    if found.doubt:
        return UNKNOWN, found.doubt
    if not fit.fits.all():
        close = "; a changed or quantized version of this W, or noise on its logits, would leave as little"
        return NOT, f"the rows leave the span of W by more than roundoff{close * bool(np.median(fit.outside) < CLOSE)}"
    if found.edit:
        return EDITED, f"the rows lie in the span of W {found.edit}"
    if ellipse is None:
        return LAYER, "the rows lie in the span of W; the model shows no final norm that h could be tested with"
    if ellipse.limit >= 1:
        return LAYER, "the rows lie in the span of W; they are too coarse to tell the norm"
    off = [each for each in (ellipse, mean) if each is not None and each.value > each.limit]
    if off:
        return STATES, "the rows lie in the span of W, and the states do not lie on the ellipse of the norm"
    return SAME, "the rows lie in the span of W, and the states on the ellipse of the norm"
