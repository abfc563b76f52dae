"""How many dimensions of its output layer a model uses on a text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor

from ..core.checks import check_positive
from ..core.devices import exact, sum_type
from ..core.full_precision import full_precision
from ..core.progress import Progress, reporting
from ..errors import Parameter, Sentence, SourceError
from ..heads.scores import Scores
from ..language_models import ModelOnText
from ..results.base import Drawings, Result
from ..results.quantity import ANSWER, NOWHERE, TABLE, Quantity
from ..sources import Source
from ..sources.measurement import MeasurementOptions, measurement, opened
from ..spectrum.arithmetic import triangle_of_blocks
from .directions import ROWS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST = 1e-9
"""Smallest singular value of scaled hidden states, over the largest, below which a direction counts as not there. Other
texts may have it, and the model of all d dimensions then errs by float64's roundoff over this."""
KEPT = 0.99
"""Share of the distribution, and of the perplexity, that the printed sentence asks for."""
FITS = {"other_text": "fitted on another text", "same_text": "fitted on this text itself"}
"""The two fits, and what figures call them."""
LABELS = ("one head", "this text")
"""What the lines call the two fits."""
MEANING = "the verdict says what the model needs, the other fit only what this text spans"


@dataclass(frozen=True)
class Reduced:
    """The model with its row-centred logits reduced to r dimensions, beside the model itself; means over contexts."""

    dimensions: int
    """r."""
    kl: float
    """KL(P‖P_r), in nats."""
    perplexity: float | None
    """Perplexity of the targets under P_r, if they are known."""
    agreement: float
    """Share of the contexts in which both have the same likeliest token."""
    acceptance: float
    """1 − TV(P, P_r), with which speculative decoding accepts a draft from P_r (Leviathan et al. 2023, theorem 3.5)."""


@dataclass(frozen=True, repr=False)
class NeedReport(Result, kind="need"):
    """What is left of a model when its output layer has only r of its d dimensions."""

    source: Mapping[str, Any]
    """What was measured: path, kind, head, corpus, split."""
    fitted: int
    """Contexts that the one matrix for all texts was fitted on: the first half."""
    contexts: int
    """Contexts that both fits were measured on: the second half."""
    vocab: int
    embedding_size: int
    """d, the bound on r."""
    perplexity: float | None
    """The model's own perplexity on these contexts, if the targets are known."""
    other_text: tuple[Reduced, ...]
    """The best matrix of rank r for the first half: what a smaller head, one for all texts, would give."""
    same_text: tuple[Reduced, ...]
    """The best logits of rank r for the measured contexts themselves: what this text spans."""
    seconds: float = 0.0
    """Wall-clock time."""

    def needed(self, fit: str = "other_text") -> tuple[int, int | None]:
        """Return the fewest measured dimensions with acceptance 0.99, and those with at most 1/0.99 the perplexity."""
        curve: Sequence[Reduced] = getattr(self, fit)
        kept = next((each.dimensions for each in curve if each.acceptance >= KEPT), self.embedding_size)
        if self.perplexity is None:
            return kept, None
        limit = self.perplexity / KEPT
        return kept, next((each.dimensions for each in curve if (each.perplexity or math.inf) <= limit), None)

    def quantities(self) -> Iterator[Quantity]:
        """Yield the dimensions that are needed, and the curve of both fits."""
        text = " ".join(str(self.source[key]) for key in ("corpus", "split") if self.source.get(key))
        own = "" if self.perplexity is None else f"; perplexity {self.perplexity:.4g}"
        size = f"{self.contexts:,} contexts × {self.vocab:,} tokens, d = {self.embedding_size:,}"
        model = f"{self.source['path']} ({self.source['head']}){text and f' on {text}'}: {size}{own}"
        hows = (f"fitted on {self.fitted:,} other contexts", "fitted on the measured contexts themselves")
        yield Quantity("verdict", self._sentence("other_text", hows[0]), "verdict")
        for fit, label, how in zip(FITS, LABELS, hows, strict=True):
            needed = dict(zip(("acceptance", "perplexity"), self.needed(fit), strict=True))
            shown = NOWHERE if fit == "other_text" else ANSWER
            yield Quantity(f"needed.{fit}", needed, label, shown, self._sentence(fit, how))
            yield Quantity("", needed["acceptance"], f"needed, {label}", TABLE)
        yield Quantity("", None, "meaning", text=MEANING)
        yield Quantity("", None, "model", text=model)
        for pair in zip(self.other_text, self.same_text, strict=True):
            for what, point in zip(LABELS, pair, strict=True):
                label = f"r = {point.dimensions:,}" if what == LABELS[0] else ""
                yield Quantity("", None, label, text=f"{what}: {_numbers(point)}")
        kept = self.needed()[0]
        below = max((each.dimensions for each in self.other_text if each.dimensions < kept), default=0)
        if below < kept - 1:
            narrower = Sentence(Parameter("ranks"), f" between {below:,} and {kept:,} may show that fewer are enough")
            yield Quantity("next", narrower, "next")

    def _sentence(self, fit: str, how: str) -> str:
        kept, perplexity = self.needed(fit)
        more = "" if perplexity is None else f", and {perplexity:,} the perplexity within 1 %"
        return f"{kept:,} of {self.embedding_size:,} dimensions keep 99 % of the distribution (1 − TV){more}; {how}"

    def panels(self) -> Drawings:
        """Return panels of the perplexity over the model's, and of the acceptance, against r, with both fits and d."""
        ratio = [] if self.perplexity is None else [partial(self._draw, "perplexity", self.perplexity)]
        return [*ratio, partial(self._draw, "acceptance", 1.0)]

    def _draw(self, what: str, unit: float, ax: Axes) -> None:
        from matplotlib.ticker import LogFormatter

        from ..results.plotting.looks import BLUE, ORANGE

        for (fit, label), line, color in zip(FITS.items(), ("-o", "--s"), (BLUE, ORANGE), strict=True):
            curve: Sequence[Reduced] = getattr(self, fit)
            values = [getattr(each, what) / unit for each in curve]
            ax.plot([each.dimensions for each in curve], values, line, color=color, markersize=3, label=label)
        ax.axvline(self.embedding_size, color="0.45", linestyle="-.", linewidth=0.9, label="bound d")
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_xlabel("dimensions $r$")
        if what == "perplexity":
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.0, 0.5)))  # 1.02 near 1, not 10^0
        ax.set_ylabel("perplexity over the model's" if what == "perplexity" else "acceptance, $1 - \\mathrm{TV}$")


@measurement(opens=opened)
def need(source: Source, *, ranks: Sequence[int] | None = None, **options: Unpack[MeasurementOptions]) -> NeedReport:
    r"""Measure what is left of a model when its output layer has only r of its d dimensions.

    With H the context vectors of some contexts, (T, d), and C = W − 1w̄ᵀ the output embeddings less their mean row, the
    row-centred logits are H Cᵀ. The nearest of rank r are H Π_r Cᵀ (Eckart and Young), with

    .. math:: Π_r = R^{-1} E_r E_r^⊤ R, \quad H = Q R, \quad R C^⊤C R^⊤ = E Λ E^⊤

    with R triangular, so no T × M matrix is decomposed, and C Π_rᵀ is also the one matrix of rank r that is best for
    these contexts. It is fitted on the first half of the contexts and on the second half, and measured on the second
    half both times, in blocks. A bias, and with a soft cap or another function of the logits their mean, is kept beside
    the r dimensions.

    Args:
        source: a model as for `rank` whose head has one set of logits; each half needs some contexts.
        ranks: values of r; by default 1, 2, 4, … and d.
        options: how the source is opened, and where to report, see `MeasurementOptions`.

    Raises:
        SourceError: for a mixture, a matrix, or fewer than two contexts.
        ConfigurationError: for r that is not a whole number from 1 to d.
    """
    source = source.scored()
    head = source.head if isinstance(source, ModelOnText) else None
    if not isinstance(source, ModelOnText) or head is None or not head.has_linear_logits:
        raise SourceError(
            f"{source.description['path']} does not show an output layer with one set of logits: give a model "
            "with a softmax, or its output layer with hidden states"
        )
    (T, M), d = source.shape, source.embedding_size
    if T < 2:
        raise SourceError(f"{source.description['path']} has one context, and both halves need some: give more text")
    given = ranks if isinstance(ranks, Sequence) else [ranks]
    for r in given:
        check_positive(at_most=d, ranks=r)
    chosen = sorted({*([2**power for power in range(d.bit_length())] if ranks is None else given), d})
    halves = range(T // 2), range(T // 2, T)
    with torch.no_grad(), full_precision():
        curves, perplexity = _curves(source, halves, chosen, reporting(options.get("progress", False)))
    return NeedReport(
        source=source.description,
        fitted=len(halves[0]),
        contexts=len(halves[1]),
        vocab=M,
        embedding_size=d,
        perplexity=perplexity,
        other_text=curves[0],
        same_text=curves[1],
    )


def _curves(
    source: ModelOnText, halves: tuple[range, range], ranks: Sequence[int], progress: Progress
) -> tuple[list[tuple[Reduced, ...]], float | None]:
    """Return the curves of fits on either half, on the contexts of the second, and the model's perplexity there."""
    measured = halves[1]
    weight = source.head.weight.detach()
    mean = sum((exact(rows).sum(0) for rows in weight.split(ROWS)), torch.zeros(())) / len(weight)
    triangle = triangle_of_blocks(exact(rows) - mean for rows in weight.split(ROWS))
    bases = [_basis(source, contexts, triangle, mean) for contexts in halves]
    targets = None if source.targets is None else torch.from_numpy(source.targets).to(weight.device)
    sums = torch.zeros(len(halves), len(ranks), 4, dtype=torch.float64)
    loss = 0.0
    with progress.bar("reducing the output layer", len(measured), "contexts") as bar:
        for rows, hidden in _hidden(source, measured):
            scores = source.head.scores(hidden)
            log_p = source.head.log_prob(hidden)
            own = log_p, log_p.exp(), log_p.argmax(1)
            token = None if targets is None else targets[rows.start : rows.stop, None]
            loss -= 0.0 if token is None else float(log_p.gather(1, token).sum(dtype=sum_type(log_p.device)))
            for fit, basis in enumerate(bases):
                for place, log_q in enumerate(_reduced_log_probs(scores, basis, mean, ranks)):
                    sums[fit, place] += _distances(own, log_q, token)
            bar.advance(len(hidden))
    means = sums / len(measured)
    curves = [
        tuple(
            Reduced(r, max(0.0, kl), None if targets is None else math.exp(min(nll, 700.0)), same, kept)
            for r, (kl, nll, same, kept) in zip(ranks, curve, strict=True)
        )
        for curve in means.tolist()
    ]
    return curves, None if targets is None else math.exp(loss / len(measured))


def _hidden(source: ModelOnText, contexts: range) -> Iterator[tuple[range, Tensor]]:
    step = source.rows_at_once()
    ranges = [range(start, min(start + step, contexts.stop)) for start in range(contexts.start, contexts.stop, step)]
    return zip(ranges, source.hidden(ranges), strict=True)


def _basis(source: ModelOnText, contexts: range, of_weight: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Return R⁻¹ E, (d, d), and C Rᵀ E, (M, d): the first r columns give the row-centred logits of rank r.

    The columns of R are scaled, because the size of a dimension of H says nothing beside that of W. ``of_weight`` is
    the triangle of C.
    """
    vectors = (source.head.scores(hidden).factors[0].contexts.squeeze(-2) for _, hidden in _hidden(source, contexts))
    triangle = triangle_of_blocks(exact(rows) for rows in vectors)
    triangle = torch.nn.functional.pad(triangle, (0, 0, 0, triangle.shape[1] - len(triangle)))
    scale = torch.linalg.vector_norm(triangle, dim=0)
    scale = torch.where(scale > 0, scale, 1.0)
    left, values, right = torch.linalg.svd(triangle / scale)
    # Directions that no context has: they come last, and make r = d the model itself on every text.
    values = values.clamp_min(max(LEAST * float(values[0]), torch.finfo(torch.float64).tiny))
    root, inverse = (left * values) @ right * scale, right.T / scale[:, None] / values @ left.T
    directions = torch.linalg.svd(root @ of_weight.T)[0]
    weight = source.head.weight.detach()
    found = torch.cat([((exact(rows) - mean) @ (root.T @ directions)).to(weight) for rows in weight.split(ROWS)])
    return inverse @ directions, found


def _reduced_log_probs(
    scores: Scores, basis: tuple[Tensor, Tensor], mean: Tensor, ranks: Sequence[int]
) -> Iterator[Tensor]:
    """Yield log P_r for each r."""
    (factors,), function, (inverse, right) = scores.factors, scores.function, basis
    contexts = exact(factors.contexts.squeeze(-2))
    left = (contexts @ inverse).to(right)
    logits = torch.zeros(len(left), len(right)).to(right)
    if factors.bias is not None:
        logits += factors.bias
    if function is not None:
        logits += (contexts @ mean)[:, None].to(logits)
    for start, r in zip([0, *ranks], ranks, strict=False):
        logits.addmm_(left[:, start:r], right[:, start:r].T)
        capped = logits if function is None else function(logits.unsqueeze(-2)).squeeze(-2)
        yield torch.log_softmax(capped, -1)


def _distances(own: tuple[Tensor, Tensor, Tensor], log_q: Tensor, target: Tensor | None) -> Tensor:
    """Return the sums over contexts of KL, the loss of the target, agreement, and 1 − TV, in float64.

    ``own`` is log P, P and the likeliest tokens of the model.
    """
    (log_p, p, likeliest), wide = own, sum_type(log_q.device)
    divergence = torch.where(p > 0, p * (log_p - log_q), 0.0).sum(dtype=wide)
    loss = log_q.new_zeros(()) if target is None else -log_q.gather(1, target).sum(dtype=wide)
    agreement = (likeliest == log_q.argmax(1)).sum(dtype=wide)
    acceptance = (1 - (p - log_q.exp()).abs().sum(1, dtype=wide) / 2).sum()
    return torch.stack([each.cpu().double() for each in (divergence, loss, agreement, acceptance)])


def _numbers(point: Reduced) -> str:
    perplexity = "" if point.perplexity is None else f", perplexity {point.perplexity:.4g}"
    return f"KL {point.kl:.3g}{perplexity}, top-1 {point.agreement:.3f}, 1 − TV {point.acceptance:.3f}"
