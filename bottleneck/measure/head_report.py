"""What W alone says of an output layer, and which tokens it can never predict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.options import ArgmaxableOptions, LayerOptions
from ..core.progress import reporting
from ..errors import Function, Sentence, SourceError
from ..heads import RankBound
from ..results.base import Drawings, Result
from ..results.quantity import ANSWER, TABLE, Quantity
from ..sources import OutputWeights
from ..sources.measurement import layers, measurement
from ..spectrum import EPS, RankEstimate, entropy_rank, stable_rank
from ..spectrum.effective_ranks import effective_ranks
from ..theory import ArgmaxReport, PowerLaw, power_law, unargmaxable
from .directions import ROWS, Directions, directions
from .head_rows import HeadRows, head_rows

NAMED = 8
"""Number of tokens that a line names."""
SPREAD = 1e3
"""Ratio of the sizes of W's columns from which its rank, by a tolerance for the largest, does not bound H Wᵀ's."""


@dataclass(frozen=True)
class EffectiveRanks:
    """What a spectrum of W shows beside its rank."""

    effective_rank: Mapping[str, int | None]
    """For each ε the number of directions that hold all but a share ε of Σσ²."""
    entropy_rank: float
    stable_rank: float
    power_law: PowerLaw | None
    """Fit of σ_i ∝ i^(−exponent) over the first half of the spectrum; ``None`` for fewer than three values."""

    def __str__(self) -> str:
        """Return one line for people."""
        counts, law = ", ".join(f"{count:,}" for count in self.effective_rank.values()), self.power_law
        fit = "" if law is None else (
            f"; σ_i ∝ i^−{law.exponent:.3f} ({law.low:.3f} to {law.high:.3f}) up to i = {law.last:,}"
        )  # fmt: skip
        return (
            f"{counts} directions hold 99.9, 99.99, 99.999 % of Σσ²; entropy rank {self.entropy_rank:.1f}, stable "
            f"rank {self.stable_rank:.2f}{fit}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class HeadReport(Result, kind="head"):
    """Sizes, spectrum, mean and unusual rows of the output embeddings W, and the bound that the output layer sets."""

    source: Mapping[str, Any]
    """``path``, ``kind`` and ``head``."""
    vocab: int
    """M."""
    embedding_size: int
    """d."""
    stored: str
    """Type of W in its file."""
    tied: bool | None
    """Whether W is also the input embeddings, if that is known."""
    bias: bool
    """Whether there is an output bias."""
    bound: RankBound
    """Bound on the rank of log P."""
    raw: EffectiveRanks
    """What the spectrum of W shows."""
    centered: EffectiveRanks
    """What that of W with the mean row subtracted shows."""
    weight: Directions
    """Singular values and ranks of W, raw and with the mean row subtracted."""
    rows_found: HeadRows = field(metadata={"key": "rows"})
    names: Mapping[int, str]
    """The tokens of the rows found, if a tokenizer or a vocabulary is there."""
    seconds: float = 0.0
    """Wall-clock time."""

    def quantities(self) -> Iterator[Quantity]:
        """Yield the sizes, the bound, the spectrum, the mean and the unusual rows of W."""
        found, weight, bound = self.rows_found, self.weight, self.bound
        tied = {True: ", tied to the input", False: ", not tied to the input", None: ""}[self.tied]
        limit = "none" if bound.raw is None else f"{bound.raw:,} for the rank of log P, row-centred {bound.centered:,}"
        shared = ""
        if weight.spread > SPREAD and weight.rank.high < self.embedding_size:
            shared = f", but its columns differ in size by {weight.spread:.1g}, which hidden states may make up for"
        elif bound.raw is not None:  # logits of W's rank, and what else bounds log P besides them
            most = min(bound.raw - self.embedding_size + min(weight.rank.high, self.embedding_size), self.vocab)
            shared = f", so that of log P is at most {most:,}"
        zeros = f", and {len(found.zero):,} are zero" if found.zero else ""
        rows = f"{len(found.never_trained):,} of {self.vocab:,} rows look never trained{zeros}"
        verdict = f"W has rank {weight.rank}{shared}; {rows}"
        equal = sum(map(len, found.duplicates))
        size = f"{self.vocab:,} tokens × {self.embedding_size:,}"
        layer = f"{self.source['path']} ({self.source['head']}): {size}, {self.stored}{tied}"
        norms = f"norm {found.mean_norm:.4g}, the rows' median {found.median_norm:.4g}"
        ranks = f"{weight.rank}, with the mean row subtracted {weight.rank_centered}"
        cosine = f"{norms}; mean cosine of two rows {weight.cosine}"
        shown, never, outliers = ANSWER | TABLE, found.never_trained, found.outliers
        yield Quantity("verdict", verdict, "verdict")
        yield Quantity("", None, "output layer", text=f"{layer}, {'with a bias' if self.bias else 'without bias'}")
        yield Quantity("vocab", self.vocab, "tokens", TABLE)
        yield Quantity("embedding_size", self.embedding_size, "d", TABLE)
        yield Quantity("bound.raw", bound.raw, "bound", TABLE)
        yield Quantity("", None, "bound", text=limit)
        yield Quantity("weight.rank", weight.rank, "rank of W", shown, ranks)
        yield Quantity("", None, "spectrum", text=str(self.raw))
        yield Quantity("", None, "mean subtracted", text=str(self.centered))
        yield Quantity("weight.mean_cosine", weight.mean_cosine, "mean row", shown, cosine)
        yield Quantity("", len(never), "never trained", shown, self._never_trained())
        yield Quantity("", len(found.zero), "rows of zeros", shown, self._listed(found.zero))
        yield Quantity("", equal, "equal rows", shown, self._equal())
        yield Quantity("", len(outliers), "unusual norms", shown, self._norms())
        after: tuple[Function | str, ...] = (
            Function("rank"),
            " counts the dimensions of the log-probabilities on a text",
        )
        if self.rows_found.tried:
            yield Quantity("", None, "argmax", text=self._argmax())
            needed = Function("need"), ", how many dimensions a text needs"
            after = Function("argmaxable"), " decides each token; ", *needed
        yield Quantity("next", Sentence(*after), "next")

    def panels(self) -> Drawings:
        """Return a panel of the singular values of W, and of those with its mean row subtracted."""
        return self.weight.panels("W")

    def _never_trained(self) -> str:
        found = self.rows_found
        start = f"{len(found.known_unused):,} rows known to be unused" if found.known_unused else ""
        reasons = {
            "copies of others": found.copies,
            f"alike {start or 'rows of small norm'}": found.alike,
            f"like random rows, as {start or 'rows of small norm'}": found.initial,
        }
        because = [f"{len(ids):,} {why}" for why, ids in reasons.items() if ids]
        return f"{self._listed(found.never_trained)}{'; ' if because or start else ''}{', '.join(because) or start}"

    def _equal(self) -> str:
        found = self.rows_found
        tokens = found.equal if found.quantized else [*chain(*found.duplicates)]
        groups = f"; {len(found.duplicates):,} groups of rows without any difference" if tokens else ""
        why = "; W is quantized, which makes close rows equal: only W before it could show that they were never trained"
        return f"{self._listed(tokens)}{groups}{why if tokens and found.quantized else ''}"

    def _norms(self) -> str:
        found = self.rows_found
        groups = (
            f"; {count:,} rows have norms about {norm / found.median_norm:.2g} times the median: more than a few rows "
            "that were never trained, so a property of W"
            for count, norm in found.groups
        )
        return "".join([self._listed(found.outliers), *groups])

    def _argmax(self) -> str:
        found = self.rows_found
        never = sum(map(len, found.duplicates)) if not self.bias else 0
        equal = f"; the {never:,} with equal rows are never the only one" if never else ""
        return f"at least {found.argmaxable:,} of {found.tried:,} tokens can be it, by one context vector each{equal}"

    def _listed(self, tokens: Sequence[int]) -> str:
        if not tokens:
            return "none"
        shown = [f"{token} {self.names[token]!r}" if token in self.names else str(token) for token in tokens[:NAMED]]
        return f"{len(tokens):,}: {', '.join([*shown, *(['…'] if len(tokens) > NAMED else [])])}"


@measurement(LayerOptions, opens=layers)
def head(source: OutputWeights, **options: Unpack[LayerOptions]) -> HeadReport:
    r"""Return what the output embeddings W alone say of an output layer; a text is neither read nor asked for.

    Ranks and spectra of W bound those of the logits H Wᵀ, and those of W less its mean row :math:`\mu` the row-centred
    ones, :math:`H (W - 1\mu^⊤)^⊤`. The mean logit of a context is h·μ (Stollenwerk, Lokrantz and Hertzberg 2026, arXiv
    2601.02031). `head_rows` says how rows are found that were never trained (Land and Bartolo 2024, arXiv 2405.05417).
    W is read in blocks, and every number is computed in float64.

    Args:
        source: a run, a Hugging Face model (a folder, a name or a loaded one), a GGUF file, W as an array or FILE or
            FILE:NAME, an ``nn.Linear``, or a `Head`.
        options: see `LayerOptions`.

    Raises:
        SourceError: for what has no output layer.
        MatrixError: for numbers that are not finite.

    Example:
        >>> report = head(torch.randn(500, 8, generator=torch.Generator().manual_seed(0)))
        >>> report.weight.rank.value, report.bound.raw, report.rows_found.never_trained
        (8, 9, ())
    """
    layer, M = source, len(source.weight)
    padding = () if layer.own_tokens is None else range(layer.own_tokens, M)
    unused = [*padding, *(token for token in layer.unused if token < M)]
    weight = directions(layer.weight.split(ROWS))
    with torch.no_grad():
        eps, quantized = _roundoff(layer.stored)
        found = head_rows(*_ordering(layer), known_unused=unused, roundoff=eps, quantized=quantized)
    if not layer.head.has_linear_logits:
        found = replace(found, tried=0, argmaxable=0)
    tokens = {*chain(found.zero, found.equal, found.never_trained, found.outliers)}
    named = sorted(token for token in tokens if layer.own_tokens is None or token < layer.own_tokens)
    return HeadReport(
        source=layer.source,
        vocab=M,
        embedding_size=layer.weight.shape[1],
        stored=layer.stored,
        tied=layer.tied,
        bias=layer.bias is not None,
        bound=layer.head.rank_bound,
        raw=_effective_ranks(weight.values, weight.rank),
        centered=_effective_ranks(weight.centered, weight.rank_centered),
        weight=weight,
        rows_found=found,
        names={} if layer.tokenizer is None else dict(zip(named, layer.tokenizer.names(named), strict=True)),
    )


@measurement(ArgmaxableOptions, opens=layers)
def argmaxable(source: OutputWeights, **options: Unpack[ArgmaxableOptions]) -> ArgmaxReport:
    """Decide for each token of a source's output layer whether any context vector makes it the argmax.

    Args:
        source: an output layer as for `head`, a single softmax, log-linear or with an increasing function applied to
            each logit. A text is neither read nor asked for.
        options: see `ArgmaxableOptions`; those about a text are accepted and change nothing.

    Raises:
        SourceError: for a mixture, whose argmax no single set of logits decides, or what has no output layer.
        MatrixError: for numbers that are not finite.
    """
    layer = source
    if not layer.head.has_linear_logits:
        raise SourceError(
            f"{layer.source['path']} has a {layer.source['head']} head: the argmax of a mixture is not decided by one "
            "set of logits; give a model with a single softmax"
        )
    progress, workers = reporting(options["progress"]), options["workers"] or 1
    report = unargmaxable(*_ordering(layer), seconds=options["limit"], workers=workers, progress=progress)
    if layer.own_tokens is not None and layer.own_tokens < report.vocab:
        report = report.with_padding(layer.own_tokens)
    return replace(report, source=layer.source)


def _ordering(layer: OutputWeights) -> tuple[Tensor, Tensor | None]:
    """Return W and b with their signs changed where a negative scale of the logits turns around their order."""
    if getattr(layer.head, "scale", 1) > 0:
        return layer.weight, layer.bias
    return -layer.weight, None if layer.bias is None else -layer.bias


def _roundoff(stored: str) -> tuple[float, bool]:
    """Return the relative roundoff of a type, and whether it is a quantized one: one step of the largest in a block."""
    types = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    eps, bits = EPS.get(types.get(stored, stored)), re.search(r"Q(\d)", stored)
    return eps or (2.0 ** (1 - int(bits[1])) if bits else EPS["bfloat16"]), eps is None


def _effective_ranks(values: NDArray[Any], rank: RankEstimate) -> EffectiveRanks:
    last = min(rank.value, max(3, len(values) // 2))
    return EffectiveRanks(
        effective_rank=effective_ranks(values),
        entropy_rank=entropy_rank(values),
        stable_rank=stable_rank(values),
        power_law=power_law(values, last=last) if last >= 3 else None,
    )
