"""What a comparison of models with a reference gives: statistics, the rank of the difference, examples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np

from ..core.printable import printable
from ..errors import Parameter, Sentence
from ..results.base import UNSAVED, WIDTH, Result, Results, short_names
from ..results.quantity import ANSWER, DETAIL, FRAME, TABLE, Quantity
from ..spectrum import RankEstimate
from .divergences import LARGEST_LOG, ByContext, Estimate
from .report import Description
from .standard_errors import Sampling, Starts, wilson_end
from .statistic_texts import LABELS, statistic_text, table_cells

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

SHOWN = ("perplexity", "log_ratio", "kl_99", "kl_max", "acceptance")
"""Statistics that are shown below the verdict; the others are details."""
COLUMNS = ("kl", "kl_99", "kl_max", "same_top", "acceptance", "perplexity_ratio", "coverage", "kl_floor")
"""Statistics that are columns of a table; a data frame has all."""
SIGNS = {"kl": 1, "same_top": -1, "perplexity_ratio": 1}
"""Statistics that may have a limit: a largest (1) or a smallest (−1) number."""
CUT = 0.001
"""Largest mean probability, on tokens that one of two models does not have, with which a model may pass."""
LIMITS = Sentence("limits, ", Parameter("max_kl"), " or ", Parameter("min_agreement"), ", say whether Q may replace P")
"""What to do after a comparison without limits."""


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

    def lines(self, names: Sequence[str], width: int) -> list[tuple[str, str]]:
        """Return the end of the context, and the likeliest tokens of both models, in lines of limited width."""
        better = names[self.margin < 0]
        target = f" ▸{printable(self.target)}◂"
        before = printable(f"… {self.context}")
        room = max(0, width - len(target))
        before = before if len(before) <= room else f"…{before[len(before) + 1 - room :]}"
        lines = [(f"{better} is better", before + target)]
        for name, nll, top in zip(names, self.nll, self.top, strict=True):
            listed = ", ".join(f"{printable(repr(each.token))} {each.probability:.2f}" for each in top)
            text = f"−log P {nll:.2f}; {listed}"
            lines.append((name, text if len(text) <= width else f"{text[: width - 1].rpartition(',')[0]}, …"))
        return lines


@dataclass(frozen=True)
class DifferenceRank:
    """The rank of log P − log Q, row-centred: how many directions a change of the model moved."""

    rank: RankEstimate
    most: int
    """Largest rank that the contexts, the tokens and the output layers allow."""
    effective_rank: int | None
    """Number of directions that hold 99.9 % of Σσ²; ``None`` if a sketch cannot tell, or all is roundoff."""
    method: str
    """Name of the spectrum method."""

    def quantities(self) -> Iterator[Quantity]:
        """Yield both ranks."""
        held = "unknown" if self.effective_rank is None else f"{self.effective_rank:,} directions hold 99.9 % of Σσ²"
        yield Quantity("difference.rank", self.rank, "rank of difference", TABLE)
        yield Quantity("", None, "rank of difference", text=f"{self.rank}; at most {self.most:,}")
        yield Quantity("difference.effective_rank", self.effective_rank, "effective rank", TABLE)
        yield Quantity("", None, "effective rank", text=held)


@dataclass(frozen=True)
class Limit:
    """A largest or smallest allowed number, and whether a model keeps it."""

    statistic: str
    """A name in `SIGNS`."""
    bound: float
    end: float | None
    """The end of the statistic's 95 % interval that has to keep the bound; ``None`` if it is infinite or unknown."""
    passed: bool


@dataclass(frozen=True)
class Farther:
    """By how much a model is farther from the reference than another one."""

    than: str
    """Name of the next closer model."""
    kl: Estimate
    """Mean difference of KL(P‖Q), from the differences context by context."""
    is_sure: bool
    """Whether the interval of the difference leaves out 0; those of all pairs of models hold at once in 95 %."""
    is_closest: bool
    """Whether that of the difference from the closest model holds 0."""

    def __str__(self) -> str:
        """Return the difference, or that there is none to be seen."""
        return f"+{statistic_text('kl', {'kl': self.kl}, short=True)}" if self.is_sure else f"as close as {self.than}"


@dataclass(frozen=True, repr=False)
class Comparison(Result, kind="comparison"):
    """A comparison of a model Q with a reference P on one text."""

    sources: tuple[Description, Description]
    """The reference and the model."""
    contexts: int
    nll: tuple[float, float] | None
    """Mean negative log-likelihood of each, in nats; ``None`` if it is unknown which tokens come next."""
    first_better: tuple[Example, ...]
    """The contexts where the reference beats the model by most, largest margin first."""
    second_better: tuple[Example, ...]
    vocab: int = 0
    """Number of common tokens."""
    statistics: Mapping[str, Estimate] = field(default_factory=dict, hash=False)
    """What `divergences.statistics` returns."""
    difference: DifferenceRank | None = None
    """``None`` if the difference has no finite column, or could not be decomposed."""
    definitions: str = "exact"
    """``"exact"``, or ``"llama.cpp"`` for a KL(P‖Q) over tokens of probability above e⁻¹⁶ in P."""
    notes: tuple[str, ...] = ()
    """What was left out, one sentence each."""
    blocks: int = 0
    """Number of blocks of contexts that the intervals count; see `standard_errors.Sampling`."""
    different: int | None = None
    """Number of different contexts that tell as much; see `standard_errors.Sampling.effective`."""
    bytes: int | None = None
    """Bytes of the tokens that follow, if their texts are known."""
    limits: tuple[Limit, ...] = ()
    """The limits that were given."""
    farther: Farther | None = None
    """How much closer the next closer of several models is."""
    by_context: Mapping[str, Any] = field(default_factory=dict, compare=False, metadata=UNSAVED)
    """KL(P‖Q), its roundoff and the entropy of P of each context, in nats: ``"kl"``, ``"roundoff"`` and ``"entropy"``,
    (T,) float64."""

    @property
    def names(self) -> list[str]:
        """Short names of the reference and the model."""
        shorts = short_names(str(source["path"]) for source in self.sources)
        return [str(source.get("label") or short) for source, short in zip(self.sources, shorts, strict=True)]

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.names[1]

    def named(self, label: str) -> Self:
        """Return this comparison with another name of the model."""
        return replace(self, sources=(self.sources[0], {**self.sources[1], "label": label}))

    @property
    def passed(self) -> bool:
        """Whether the model keeps all limits."""
        return all(limit.passed for limit in self.limits)

    def judged(self, bounds: Mapping[str, float | None], *, cut: float = 0.0, doubt: str = "") -> Self:
        """Return this comparison with limits for `SIGNS`.

        What is not known fails, and everything if more than `CUT` is cut, under a ``doubt``, or if states do not
        belong to their layer.
        """
        limits, notes, why = [], list(self.notes), doubt
        if any(source.get("mismatch") for source in self.sources):
            why = "the states of one may not be those that its output layer takes"
        if cut > CUT:
            why = f"tokens that one of the two lacks hold over {CUT:.1g} of the probability"
        if why and any(bound is not None for bound in bounds.values()):
            notes.append(f"no limit passes: {why}")
        for name, bound in bounds.items():
            if bound is not None:
                sign = SIGNS[name]
                is_known = name in self.statistics and not why
                end = self.statistics[name].end(sign, self.blocks) if is_known else sign * math.inf
                if name == "perplexity_ratio" and math.isfinite(end):
                    end = math.exp(min(self.statistics["log_ratio"].end(sign, self.blocks), LARGEST_LOG))
                if name == "same_top" and math.isfinite(end):
                    found = self.statistics[name]
                    share, error = (found.value or 0.0) - (found.roundoff or 0.0), found.standard_error or 0.0
                    end = wilson_end(share, error, self.blocks, self.different or self.contexts)
                limits.append(Limit(name, bound, end if math.isfinite(end) else None, sign * (bound - end) >= 0))
        return replace(self, limits=tuple(limits), notes=tuple(notes))

    def plot(self, ax: Axes | str | Path | None = None, *, style: str = "screen") -> Axes:
        """Draw the divergences of the contexts; see `Comparisons.plot`."""
        return Comparisons([self]).plot(ax, style=style)

    def quantities(self) -> Iterator[Quantity]:
        """Yield the verdict, the statistics, the rank of the difference, and contexts where either model is better."""
        known, short = self.statistics, table_cells(self.statistics)
        perplexity = (
            known.get("reference_perplexity") and f", perplexity {statistic_text('reference_perplexity', known)}"
        )
        verdict = f"KL(P‖Q) {short[LABELS['kl']]} nats; same top token: {short[LABELS['same_top']]}"
        if self.limits:
            verdict = f"{'passed' if self.passed else 'failed'}: {verdict}"
            yield Quantity("passed", self.passed, "passed", TABLE)
        yield Quantity("verdict", verdict, "verdict")
        yield from (Quantity("", None, "limit", text=_judgement(limit)) for limit in self.limits)
        yield Quantity("", self.names[0], "reference", FRAME)
        yield Quantity("", None, "reference", text=f"P = {self.names[0]}{perplexity or ''}")
        yield Quantity("", None, "model", text=f"Q = {self.names[1]}")
        of_blocks = f"; errors over {self.blocks:,} blocks of them" if 1 < self.blocks < self.contexts else ""
        yield Quantity("", None, "matrix", text=f"{self.contexts:,} contexts × {self.vocab:,} tokens{of_blocks}")
        yield Quantity("contexts", self.contexts, "contexts", FRAME)
        yield Quantity("vocab", self.vocab, "tokens", FRAME)
        yield from (Quantity("", None, "note", text=note) for note in self.notes)
        for name, label in LABELS.items():
            if name in known:
                shown = TABLE if name in COLUMNS else FRAME
                yield Quantity(("statistics", name), known[name], label, shown, short[label])
                yield Quantity("", None, label, ANSWER if name in SHOWN else DETAIL, statistic_text(name, known))
        if self.bytes and self.nll:
            ends = (f"{math.exp(each * self.contexts / self.bytes):.4f}" for each in self.nll)
            yield Quantity("", None, "perplexity per byte", DETAIL, " and Q ".join(("P " + next(ends), next(ends))))
        if self.farther:
            yield Quantity("", str(self.farther), "beyond the next closer", TABLE)
            yield Quantity("", None, "next closer, nats", text=f"{self.farther.than}; {self.farther}")
        if size := self.sources[1].get("bytes"):
            yield Quantity("", f"{size / 1e6:,.1f} MB", "size", TABLE)
        yield from self.difference.quantities() if self.difference else ()
        for example in (*self.first_better, *self.second_better):
            width = WIDTH - 2 - max(map(len, (*LABELS.values(), *(f"{name} is better" for name in self.names))))
            yield from (Quantity("", None, label, text=text) for label, text in example.lines(self.names, width))
        if not self.limits:
            yield Quantity("next", LIMITS, "next")


@final
class Comparisons(Results[Comparison]):
    """Comparisons of several models with one reference: a sequence, also by name, a table and a figure."""

    def ordered(self) -> Self:
        """Return the comparisons by KL(P‖Q), the smallest first."""
        return type(self)(sorted(self, key=_mean_kl))

    @property
    def verdict(self) -> str:
        """Say which models are closest to the reference, how often they agree with it, and which keep the limits."""
        models = self.ordered()
        first, vocab = models[0], sorted({each.vocab for each in models})
        near = [first, *(each for each in models[1:] if each.farther and each.farther.is_closest)]
        closest = [each.name for each in near]
        names = " and ".join(filter(None, (", ".join(closest[:-1]), closest[-1])))
        are = ", whose KL(P‖Q) cannot be told apart, are" if len(closest) > 1 else " is"
        some = f", over the tokens that each shares with it ({vocab[0]:,} to {vocab[-1]:,})" if len(vocab) > 1 else ""
        label, shares = LABELS["same_top"], {each.statistics["same_top"].value or 0.0: each.statistics for each in near}
        agree = " to ".join(table_cells(shares[end])[label] for end in sorted({min(shares), max(shares)}))
        agree += f" of {first.contexts:,} contexts"
        text = f"{names}{are} closest to {first.names[0]}{some}: the same token is the likeliest in {agree}"
        if math.isinf(_mean_kl(first)):
            closest, text = [], f"no model is closest to {first.names[0]}, because KL(P‖Q) is infinite for all of them"
        if not any(each.limits for each in models):
            return text
        passed = {each.name: each.sources[1].get("bytes") or 0 for each in models if each.passed}
        if not passed:
            return f"none {'can be shown to pass' if 'coverage' in first.statistics else 'passes'}; {text}"
        smallest = [name for name, size in passed.items() if 0 < size <= min(passed.values())]
        if len(smallest) == 1 < len(passed):
            return f"{smallest[0]} is the smallest of {len(passed)} models that pass ({', '.join(passed)}); {text}"
        if [*passed] == closest == [names]:
            return f"{names} passes and{text.removeprefix(names)}"
        return f"{', '.join(passed)} {'passes' if len(passed) == 1 else 'pass'}; {text}"

    def plot(self, ax: Axes | str | Path | None = None, *, style: str = "screen") -> Axes:
        """Draw the distribution of the contexts' KL(P‖Q) on a logarithmic scale, and KL against the entropy of P.

        Args:
            ax: a file to write, or axes to draw the distribution into; by default those of a new figure of both panels.
            style: one of ``plotting.STYLES``, for a new figure.
        """
        from ..results.plotting.contexts import divergence_panels
        from ..results.plotting.layout import show

        return show(divergence_panels({each.name: each.by_context for each in self}), ax, style=style)


def farther_by_pairs(
    comparisons: Sequence[Comparison], texts: Starts | None = None, first: Starts | None = None
) -> list[Comparison]:
    """Return comparisons on the same contexts, each with how much farther it is than the next closer one.

    ``texts`` and ``first`` are those of `Sampling.of`.
    """
    order, pairs = sorted(comparisons, key=_mean_kl), math.comb(len(comparisons), 2)
    beside: dict[int, Farther] = {}
    for closer, each in pairwise(order):
        if np.isfinite(each.by_context["kl"]).all():
            (kl, is_sure), (_, is_far) = (_difference(one, each, texts, first, pairs) for one in (closer, order[0]))
            beside[id(each)] = Farther(closer.name, kl, is_sure, not is_far)
    return [replace(each, farther=beside.get(id(each))) for each in comparisons]


def _difference(
    one: Comparison, other: Comparison, texts: Starts | None, first: Starts | None, pairs: int
) -> tuple[Estimate, bool]:
    """Return by how much KL(P‖Q) of the other is larger, and whether the interval, one of ``pairs``, leaves out 0."""
    values = other.by_context["kl"] - one.by_context["kl"]
    sampling = Sampling.of([values], texts, first)
    roundoff = one.by_context["roundoff"] + other.by_context["roundoff"]
    kl = ByContext(values[sampling.order], roundoff[sampling.order], starts=sampling.starts).mean()
    return kl, kl.end(-1, sampling.blocks, pairs) > 0


def _mean_kl(comparison: Comparison) -> float:
    value = comparison.statistics["kl"].value
    return math.inf if value is None else value


def _judgement(limit: Limit) -> str:
    """Return a limit, and whether the model keeps it."""
    sign = "≤" if SIGNS[limit.statistic] > 0 else "≥"
    end = "has no known end" if limit.end is None else f"ends at {limit.end:.4g}"
    kept = "passed" if limit.passed else "failed"
    return f"{LABELS[limit.statistic]} {sign} {limit.bound:g}: {kept}, the 95 % interval {end}"
