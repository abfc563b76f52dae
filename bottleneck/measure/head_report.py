"""What W alone says of an output layer, and which tokens it can never predict."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, Unpack

import torch
from numpy.typing import NDArray

from ..core.checks import check_above_zero, check_positive, typed
from ..core.options import LAYER, LayerOptions, Opening, takes
from ..core.progress import Progress, reporting
from ..core.version import __version__
from ..errors import SourceError
from ..heads import RankBound
from ..heads.log_linear import LogLinear
from ..heads.pointwise import Pointwise
from ..results.base import Result
from ..sources import output_weights
from ..spectrum import EPS, RankEstimate, effective_rank, entropy_rank, stable_rank
from ..spectrum.measures import ENERGY_LEFT_OUT
from ..theory import ArgmaxReport, PowerLaw, power_law, unargmaxable
from .directions import ROWS, Directions, directions
from .head_rows import HeadRows, head_rows

NAMED = 8
"""Number of tokens that a line names."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadReport(Result):
    """Sizes, spectrum, mean and unusual rows of the output embeddings W, and the bound that the output layer sets."""

    source: Mapping[str, Any]
    """``path``, ``kind`` and ``head``."""
    stored: str
    """Type of W in its file."""
    tied: bool | None
    """Whether W is also the input embeddings, if that is known."""
    has_bias: bool
    bound: RankBound
    """Bound on the rank of log P."""
    weight: Directions
    """Singular values and ranks of W, raw and with the mean row subtracted."""
    power_laws: tuple[PowerLaw | None, PowerLaw | None]
    """Fits of σ_i ∝ i^(−exponent) over the first half of both spectra; ``None`` for fewer than three values."""
    rows_found: HeadRows
    names: Mapping[int, str]
    """The tokens of the rows found, if a tokenizer or a vocabulary is there."""
    seconds: float
    """Wall-clock time."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        vocab, size = self.weight.shape
        both = zip(("raw", "centered"), (self.weight.values, self.weight.centered), self.power_laws, strict=True)
        return {
            "source": dict(self.source),
            "vocab": vocab,
            "embedding_size": size,
            "stored": self.stored,
            "tied": self.tied,
            "bias": self.has_bias,
            "bound": asdict(self.bound),
            **{name: _measures(values, law) for name, values, law in both},
            "weight": self.weight.to_dict(),
            "rows": self.rows_found.to_dict(),
            "names": {str(token): name for token, name in self.names.items()},
            "seconds": self.seconds,
            "version": __version__,
        }

    def summary(self) -> dict[str, Any]:
        """Return the values that a table shows."""
        found, (vocab, size) = self.rows_found, self.weight.shape
        laws = [None if law is None else law.exponent for law in self.power_laws]
        return {
            "vocab": vocab,
            "embedding_size": size,
            "bound": self.bound.raw,
            "rank": self.weight.rank.value,
            "rank_centered": self.weight.rank_centered.value,
            "stable_rank": stable_rank(self.weight.values),
            "exponent_centered": laws[1],
            "mean_cosine": self.weight.mean_cosine,
            "never_trained": len(found.never_trained),
            "zero": len(found.zero),
            "duplicates": sum(map(len, found.duplicates)),
            "outliers": len(found.outliers),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the result as pairs of label and text."""
        vocab, size = self.weight.shape
        found, weight, bound = self.rows_found, self.weight, self.bound
        tied = {True: ", tied to the input", False: ", not tied to the input", None: ""}[self.tied]
        limit = "none" if bound.raw is None else f"{bound.raw:,} for the rank of log P, row-centred {bound.centered:,}"
        layer = f"{self.source['path']} ({self.source['head']}): {vocab:,} tokens × {size:,}, {self.stored}{tied}"
        verdict = (
            f"W has rank {weight.rank}{'' if bound.raw is None else f', so that of log P is at most {bound.raw:,}'}; "
            f"{len(found.never_trained):,} of {vocab:,} rows look never trained"
        )
        norms = f"norm {found.mean_norm:.4g}, the rows' median {found.median_norm:.4g}"
        return [
            ("verdict", verdict),
            ("output layer", f"{layer}, {'with a bias' if self.has_bias else 'without bias'}"),
            ("bound", limit),
            ("rank of W", f"{weight.rank}, with the mean row subtracted {weight.rank_centered}"),
            ("spectrum", _line(weight.values, self.power_laws[0])),
            ("mean subtracted", _line(weight.centered, self.power_laws[1])),
            ("mean row", f"{norms}; mean cosine of two rows {weight.cosine}"),
            ("never trained", self._never_trained()),
            ("rows of zeros", self._listed(found.zero)),
            ("equal rows", self._equal()),
            ("unusual norms", self._norms()),
            ("argmax", self._argmax()),
            ("next", "bottleneck argmaxable decides each token; bottleneck need, how many dimensions a text needs"),
        ]

    def _never_trained(self) -> str:
        found = self.rows_found
        start = f"{len(found.known_unused):,} rows known to be unused" if found.known_unused else ""
        reasons = {
            "equal to others": () if found.quantized else found.equal,
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
        never = sum(map(len, found.duplicates)) if not self.has_bias else 0
        equal = f"; the {never:,} with equal rows are never the only one" if never else ""
        return f"at least {found.argmaxable:,} of {found.tried:,} tokens can be it, by one context vector each{equal}"

    def _listed(self, tokens: Sequence[int]) -> str:
        if not tokens:
            return "none"
        shown = [f"{token} {self.names[token]!r}" if token in self.names else str(token) for token in tokens[:NAMED]]
        return f"{len(tokens):,}: {', '.join([*shown, *(['…'] if len(tokens) > NAMED else [])])}"


@takes(LayerOptions)
@typed
def head(source: Any, **options: Unpack[LayerOptions]) -> HeadReport:
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
    started = time.monotonic()
    layer = output_weights(source, **options)
    M = len(layer.weight)
    padding = () if layer.own_tokens is None else range(layer.own_tokens, M)
    unused = [*padding, *(token for token in layer.unused if token < M)]
    weight = directions(layer.weight.split(ROWS))
    with torch.no_grad():
        eps, quantized = _roundoff(layer.stored)
        found = head_rows(layer.weight, layer.bias, known_unused=unused, roundoff=eps, quantized=quantized)
    tokens = {*chain(found.zero, found.equal, found.never_trained, found.outliers)}
    named = sorted(token for token in tokens if layer.own_tokens is None or token < layer.own_tokens)
    return HeadReport(
        source=layer.source,
        stored=layer.stored,
        tied=layer.tied,
        has_bias=layer.bias is not None,
        bound=layer.head.rank_bound,
        weight=weight,
        power_laws=(_law(weight.values, weight.rank), _law(weight.centered, weight.rank_centered)),
        rows_found=found,
        names={} if layer.names is None else dict(zip(named, layer.names(named), strict=True)),
        seconds=round(time.monotonic() - started, 3),
    )


@takes(Opening)
@typed
def argmaxable(
    source: Any,
    *,
    limit: float | None = 60.0,
    workers: int = 1,
    progress: Progress | bool = False,
    **options: Unpack[Opening],
) -> ArgmaxReport:
    """Decide for each token of a source's output layer whether any context vector makes it the argmax.

    Args:
        source: an output layer as for `head`, a single softmax, log-linear or with an increasing function applied to
            each logit. A text is neither read nor asked for.
        limit: seconds for each token's linear program; a token that exceeds it is reported as unknown.
        workers: number of processes; see `theory.unargmaxable`.
        progress: where to report; ``True`` means standard error.
        options: see `LayerOptions`; the other options of `Opening` are accepted and change nothing.

    Raises:
        SourceError: for a mixture, whose argmax no single set of logits decides, or what has no output layer.
        MatrixError: for numbers that are not finite.
    """
    started = time.monotonic()
    check_positive(workers=workers)
    check_above_zero(limit=limit)
    known: Any = {name: value for name, value in options.items() if name in LAYER}
    layer = output_weights(source, **known)
    if not isinstance(layer.head, LogLinear | Pointwise):
        raise SourceError(
            f"{layer.source['path']} has a {layer.source['head']} head: the argmax of a mixture is not decided by one "
            "set of logits; give a model with a single softmax"
        )
    report = unargmaxable(layer.weight, layer.bias, seconds=limit, workers=workers, progress=reporting(progress))
    padding = range(0) if layer.own_tokens is None else range(layer.own_tokens, report.vocab)
    return replace(report, source=layer.source, padding=padding, seconds=round(time.monotonic() - started, 3))


def _roundoff(stored: str) -> tuple[float, bool]:
    """Return the relative roundoff of a type, and whether it is a quantized one: one step of the largest in a block."""
    types = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    eps, bits = EPS.get(types.get(stored, stored)), re.search(r"Q(\d)", stored)
    return eps or (2.0 ** (1 - int(bits[1])) if bits else EPS["bfloat16"]), eps is None


def _law(values: NDArray[Any], rank: RankEstimate) -> PowerLaw | None:
    last = min(rank.value, max(3, len(values) // 2))
    return power_law(values, last=last) if last >= 3 else None


def _measures(values: NDArray[Any], law: PowerLaw | None) -> dict[str, Any]:
    return {
        "effective_rank": {name: effective_rank(values, epsilon=float(name)) for name in ENERGY_LEFT_OUT},
        "entropy_rank": entropy_rank(values),
        "stable_rank": stable_rank(values),
        "power_law": None if law is None else asdict(law),
    }


def _line(values: NDArray[Any], law: PowerLaw | None) -> str:
    counts = ", ".join(f"{effective_rank(values, epsilon=float(name)):,}" for name in ENERGY_LEFT_OUT)
    fit = "" if law is None else (
        f"; σ_i ∝ i^−{law.exponent:.3f} ({law.low:.3f} to {law.high:.3f}) up to i = {law.last:,}"
    )  # fmt: skip
    return (
        f"{counts} directions hold 99.9, 99.99, 99.999 % of Σσ²; entropy rank {entropy_rank(values):.1f}, stable rank "
        f"{stable_rank(values):.2f}{fit}"
    )
