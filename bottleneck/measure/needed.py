"""How many dimensions of its output layer a model uses on a text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch

from ..core.checks import check_positive
from ..core.full_precision import full_precision
from ..core.options import NeedOptions
from ..core.progress import reporting
from ..errors import ConfigurationError, Function, Parameter, Sentence, SourceError
from ..language_models import ModelOnText
from ..results.base import Drawings, Result
from ..results.quantity import ANSWER, NOWHERE, TABLE, Quantity
from ..sources import Source
from ..sources.measurement import measurement, opened
from .reduced_layers import KEPT, Fits, Reduced, Trained
from .trained_heads import check_free

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_TO_TRAIN = 8
"""Fewest contexts of which some can be trained on, some choose the learning rate, and some are measured."""
COLUMN = 11
"""Width of a column of the printed table."""
TICKS = 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, *(10.0**power for power in range(1, 300))
"""Ticks of the perplexity over the model's."""
FITS = {
    "other_text": "fitted on another text",
    "same_text": "fitted on this text itself",
    "trained": "trained on another text",
}
"""The fits, and what figures call them."""
LABELS = ("one head", "this text")
"""What the lines call the two fits."""
MEANING = "the verdict says what the model needs, the other fit only what this text spans"


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
    directions: int | None = None
    """Dimensions that the context vectors of each half have: few contexts, and repeated ones, have fewer than d."""
    trained: tuple[Trained, ...] = ()
    """Layers that were trained on the first half: what a smaller head reaches."""

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
        for fit, label, how in zip(FITS, LABELS, hows, strict=False):
            needed = dict(zip(("acceptance", "perplexity"), self.needed(fit), strict=True))
            shown = NOWHERE if fit == "other_text" else ANSWER
            yield Quantity(f"needed.{fit}", needed, label, shown, self._sentence(fit, how))
            yield Quantity("", needed["acceptance"], f"needed, {label}", TABLE)
        yield Quantity("", None, "meaning", text=MEANING)
        if self.directions is not None and self.directions < self.embedding_size:
            few = f"the contexts have {self.directions:,} of {self.embedding_size:,} dimensions: more, or other, text"
            yield Quantity("directions", self.directions, "contexts", text=f"{few} may have the rest")
        yield Quantity("", None, "model", text=model)
        yield from (Quantity("", None, label, text=text) for label, text in self._table())
        after = Sentence(Parameter("train"), " fits layers of fewer dimensions, which keep more than what is cut off")
        if self.trained:
            after = Sentence(Function("compare"), " says how far a trained layer is from the model")
        yield Quantity("next", after, "next")

    def _table(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of a table of all r: their labels, one head, and trained layers or those of this text."""
        others: dict[int, Reduced] = {each.dimensions: each for each in self.trained or self.same_text}
        names = ["KL", *(["perplexity"] if self.perplexity is not None else []), "1 − TV"]
        heads = LABELS[0], "trained" if self.trained else LABELS[1]
        yield "", "".join(f"{name:>{COLUMN * len(names)}}" for name in heads)
        yield "r", "".join(f"{name:>{COLUMN}}" for name in names * len(heads))
        for one in self.other_text:
            points = filter(None, (one, others.get(one.dimensions)))
            yield f"{one.dimensions:,}", "".join(map(_numbers, points))

    def _sentence(self, fit: str, how: str) -> str:
        kept, perplexity = (None if r is None else self._exact(fit, r) for r in self.needed(fit))
        more = "" if perplexity is None else f", and {perplexity} a perplexity that is at most 1 % higher"
        return f"{kept} of {self.embedding_size:,} dimensions keep 99 % of the distribution (1 − TV){more}; {how}"

    def _exact(self, fit: str, r: int) -> str:
        """Return r, or that it lies between two values where those between were not measured."""
        below = max((each.dimensions for each in getattr(self, fit) if each.dimensions < r), default=0)
        return f"{r:,}" if below == r - 1 else f"between {below + 1:,} and {r:,}"

    def panels(self) -> Drawings:
        """Return panels of the perplexity over the model's, and of the acceptance, against r, with both fits and d."""
        ratio = [] if self.perplexity is None else [partial(self._draw, "perplexity", self.perplexity)]
        return [*ratio, partial(self._draw, "acceptance", 1.0)]

    def _draw(self, what: str, unit: float, ax: Axes) -> None:
        from ..results.plotting.looks import BLUE, ORANGE

        looks = {"other_text": ("-o", BLUE), "same_text": ("--s", ORANGE), "trained": ("^", "black")}
        for fit, (line, color) in looks.items():
            if curve := getattr(self, fit):
                values = [getattr(each, what) / unit for each in curve]
                ax.plot([each.dimensions for each in curve], values, line, color=color, markersize=3, label=FITS[fit])
        ax.axvline(self.embedding_size, color="0.45", linestyle="-.", linewidth=0.9, label="bound d")
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_xlabel("dimensions $r$")
        if what == "perplexity":
            ax.set_yscale("log")
            ax.set_yticks(_ticks(ax.get_ylim()[1]))
            ax.yaxis.set_major_formatter("{x:g}")
            ax.minorticks_off()
        ax.set_ylabel("perplexity over the model's" if what == "perplexity" else "acceptance, $1 - \\mathrm{TV}$")


@measurement(NeedOptions, opens=opened)
def need(source: Source, **options: Unpack[NeedOptions]) -> NeedReport:
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
        options: how the source is opened, where to report, which r are measured, and whether layers are trained, see
            `NeedOptions`.

    Raises:
        SourceError: for a mixture, a matrix, or fewer than two contexts; eight to train.
        ConfigurationError: for r that is not a whole number from 1 to d, for ``train`` without an r below d, or for
            ``save`` without ``train``.
        OutputError: for a folder to save in that is the source's, or holds other files of these names.
    """
    ranks, train, save = options["ranks"], options["train"], options["save"]
    source = source.scored()
    head = source.head if isinstance(source, ModelOnText) else None
    if not isinstance(source, ModelOnText) or head is None or not head.has_linear_logits:
        raise SourceError(
            f"{source.description['path']} does not show an output layer with one set of logits: give a model "
            "with a softmax, or its output layer with hidden states"
        )
    (T, M), d = source.shape, source.embedding_size
    if (least := LEAST_TO_TRAIN if train else 2) > T:
        raise SourceError(
            f"{source.description['path']} has {T} contexts, and this needs {least} or more: give more text"
        )
    given = ranks if isinstance(ranks, Sequence) else [ranks]
    for r in given:
        check_positive(at_most=d, ranks=r)
    if save is not None and not train:
        raise ConfigurationError(Parameter("save"), " goes with ", Parameter("train"))
    chosen = sorted({*([2**power for power in range(d.bit_length())] if ranks is None else given), d})
    if train and chosen == [d]:
        raise ConfigurationError(Parameter("train"), " takes ", Parameter("ranks"), f" below {d:,}, the model's own")
    if save is not None:
        check_free(Path(save), [r for r in chosen if r < d], str(source.description["path"]))
    with torch.no_grad(), full_precision():
        fits = Fits(source, range(T // 2), range(T // 2, T), reporting(options.get("progress", False)))
        curves, perplexity = fits.curves(sorted({*chosen, max(1, fits.directions)}), refine=ranks is None)
        trained = fits.trained([r for r in chosen if r < d], save) if train else ()
    return NeedReport(
        source=source.description,
        fitted=T // 2,
        contexts=T - T // 2,
        vocab=M,
        embedding_size=d,
        perplexity=perplexity,
        other_text=curves[0],
        same_text=curves[1],
        directions=fits.directions,
        trained=trained,
    )


def _numbers(point: Reduced) -> str:
    """Return the cells of a table, each of the width `COLUMN`; an acceptance below `KEPT` stays below it."""
    perplexity = [] if point.perplexity is None else [f"{point.perplexity:.4g}"]
    acceptance = min(point.acceptance, KEPT - 0.001) if point.acceptance < KEPT else point.acceptance
    cells = f"{point.kl:.3g}", *perplexity, f"{acceptance:.3f}"
    return "".join(f"{cell:>{COLUMN}}" for cell in cells)


def _ticks(top: float) -> list[float]:
    """Return the ticks of a logarithmic axis from 1 that do not touch each other."""
    ticks = [1.0]
    for each in TICKS:
        if each <= top and math.log(each / ticks[-1]) > 0.06 * math.log(max(top, 1.01)):
            ticks.append(each)
    return ticks
