"""What a measurement of the expected pairwise KL divergence gives, with its errors and its doubts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from ..errors import OutputError, Parameter, Sentence
from ..results.base import Drawings, Result
from ..results.quantity import FRAME, TABLE, Quantity
from ..spectrum import Precision
from ..spectrum.precision import MORE
from .standard_errors import held_by_one

LABEL = "expected pairwise KL divergence"
PAIRS = Sentence(Parameter("pairs", 1000), " draws pairs, and shows how far their divergences are spread")
ALL = Sentence(Parameter("pairs", "all"), " gives the exact mean")


@dataclass(frozen=True)
class Histogram:
    """How often values lie in bins of equal width."""

    edges: tuple[float, ...]
    """Limits of the bins, ascending, in nats; one more than there are bins."""
    counts: tuple[int, ...]
    """Number of values in each bin; they add up to the number of values."""

    def __post_init__(self) -> None:
        """Refuse bins that do not ascend, or that hold nothing."""
        ascending = all(low < high for low, high in pairwise(self.edges))
        if len(self.edges) != len(self.counts) + 1 or sum(self.counts) < 1 or not ascending:
            raise ValueError("a histogram must hold counts between ascending edges")


@dataclass(frozen=True, repr=False)
class PairwiseKLD(Result, kind="kld"):
    """An expected pairwise Kullback-Leibler divergence; ``float(estimate)`` is its value."""

    kld: float
    """Mean of KL(P(·|c) ‖ P(·|c′)) over pairs of contexts, in nats."""
    contexts: int
    """T."""
    vocab: int
    """M."""
    roundoff: float
    """First-order bound on the error of ``kld`` that rounding the entries to their type causes, in nats."""
    largest_log_sum: float | None
    """Largest |log Σ P| of the rows before they were normalized, in nats; ``None`` for logits."""
    eps: Precision
    """The precision of the entries, from which ``roundoff`` is computed."""
    pairs: str | int = "all"
    """``"all"`` for all T² ordered pairs, c = c′ included, or the number of pairs drawn from them."""
    standard_error: float | None = None
    """Standard error of the mean for drawn pairs; ``None`` when all pairs are used. Divergences are skewed: ±1.96 of it
    covered the mean in 90 % of samples of 50 pairs, and Student's t (2.01 for 50) hardly more; take 1,000 or more."""
    source: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What was measured: path, kind, head, corpus, split."""
    seconds: float = field(default=0.0, compare=False)
    """Wall-clock time of the measurement."""
    histogram: Histogram | None = None
    """The divergences of drawn pairs; ``None`` when all pairs are used, because none of them is then formed."""
    doubt: str = ""
    """Why the entries may be something else than a model's log-probabilities: a floor, a truncation, lost digits."""

    def quantities(self) -> Iterator[Quantity]:
        """Yield the divergence, its standard error, and what was measured."""
        answer = f"{LABEL} {_nats(self.kld)} nats"
        yield Quantity("verdict", answer, "verdict", text=f"{LABEL} {self.text()}")
        yield Quantity("contexts", self.contexts, shown=FRAME)
        yield Quantity("vocab", self.vocab, shown=FRAME)
        yield Quantity("kld", self.kld, "pairwise KL", TABLE)
        yield Quantity("standard_error", self.standard_error, "standard error", TABLE)
        if self.source:
            yield Quantity("source", self.source, "source", text=str(self.source["path"]))
        yield Quantity("", None, "matrix", text=f"{self.contexts:,} contexts × {self.vocab:,} tokens")
        yield Quantity("next", PAIRS if self.histogram is None else ALL, "next")

    def panels(self) -> Drawings:
        """Return a panel of the histogram of drawn pairs; `OutputError` for all pairs, of which none is formed."""
        from ..results.plotting.measures import draw_histogram

        if self.histogram is None:
            raise OutputError("all pairs have no histogram, because none of them is formed: ", PAIRS)
        return [partial(draw_histogram, edges=self.histogram.edges, counts=self.histogram.counts, mean=self.kld)]

    def __float__(self) -> float:
        """Return the divergence in nats."""
        return self.kld

    def text(self) -> str:
        """Return the value with its errors and its doubts."""
        how, error = "all pairs", ""
        if self.standard_error is not None:
            how, error = f"{self.pairs:,} drawn pairs", f" ± {_nats(self.standard_error)} (standard error)"
        entries = self.eps.dtype or f"eps {self.eps.value:g}"
        line = f"{_nats(self.kld)}{error} ± {self.roundoff:.1g} (roundoff of {entries}) nats ({how})"
        if self.largest_log_sum is not None and self.largest_log_sum > self.roundoff:
            line += f"; the rows were normalized, |log Σ P| was at most {self.largest_log_sum:.2g} nats"
        drawn = self.histogram
        share = held_by_one(drawn.edges[-1], self.kld, sum(drawn.counts)) if drawn else 0.0
        heavy = f"one pair holds {100 * share:.0f} % of the sum: the standard error may be too small" if share else ""
        return "; ".join(filter(None, (line, heavy, looks_rounded(self.eps), self.doubt)))


def _nats(value: float) -> str:
    """Return a value in nats with four decimals, or four digits if it is small."""
    return f"{value:.4f}" if value >= 0.1 or value == 0 else f"{value:.4g}"


def looks_rounded(eps: Precision, what: str = "the numbers") -> str:
    """Return a sentence on a rounding that is coarser than the type of the numbers, or ''."""
    if eps.coarse is None:
        return ""
    if math.isinf(eps.coarse.step):
        return f"{what} of a row differ by their roundoff at most: the KL of the unrounded numbers cannot be told"
    found = f"{what} look rounded in steps of about {eps.coarse.step:.2g}, or hold as much noise"
    return f"{found}, or {MORE}" if eps.coarse.may_be_signal else f"{found}: the KL of the unrounded numbers may differ"
