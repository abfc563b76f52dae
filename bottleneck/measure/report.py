"""The report of a rank measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from ..core.version import __version__
from ..results.base import Result, aligned, short_names
from ..spectrum import (
    RULES,
    Limits,
    Precision,
    RankEstimate,
    Spectrum,
    effective_rank,
    entropy_rank,
    judge,
    stable_rank,
)
from ..spectrum.measures import ENERGY_LEFT_OUT
from ..spectrum.rules import NOISE_FACTOR
from .verdict import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Doubts(TypedDict, total=False):
    """What makes a rank doubtful beside its spectrum; arguments of `judge`."""

    recorded: Precision
    rank_warning: str


@dataclass(frozen=True)
class Finding:
    """An additional result of a report, for one kind of source or on request."""

    key: str
    """Key of the finding in `RankReport.to_dict`."""
    values: Mapping[str, Any]
    """Plain values, ready for JSON."""
    rows: tuple[tuple[str, str], ...]
    """Label and text."""
    is_detail: bool = False
    """Whether only `RankReport.details` shows the rows."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Headings of the values that a table shows."""
    verdict: Verdict | None = None
    """Verdict in place of that of the ranks."""


@dataclass(frozen=True, eq=False, repr=False)
class RankReport(Result):
    """The ranks of a log-probability matrix, their margins, the bound, and the source that was measured."""

    source: Mapping[str, Any]
    """What was measured: path, kind, head, corpus, split."""
    spectrum: Spectrum
    eps: Precision
    """The relative roundoff that the tolerances follow from."""
    rule: str
    """``"press"``, ``"numpy"`` or ``"gap"``."""
    rank: RankEstimate
    """Rank of log P."""
    rank_centered: RankEstimate
    """Rank of the row-centred log P: the least rank of logits with these probabilities (Yang et al. 2018, prop. 1)."""
    bound: Mapping[str, Any]
    """Upper bounds ``raw`` and ``centered`` (integers or ``None``) and the reason ``why``."""
    embedding_size: int | None
    """Embedding size d of the output layer, if it is known."""
    seconds: float = 0.0
    """Wall-clock time of the measurement."""
    peak_memory_bytes: int = 0
    """Largest resident size of the process."""
    why: str = ""
    """Why this method was chosen."""
    precision_found: Mapping[str, Any] = field(default_factory=dict)
    """Torch settings that lower the precision, as they were before the measurement; they are off during it."""
    findings: tuple[Finding, ...] = ()
    """Additional results."""
    variants: Mapping[str, RankReport] = field(default_factory=dict)
    """The ranks of further matrices; ``"vocab_tokenizer"`` is that of the tokenizer's tokens alone."""
    doubts: Doubts = field(default_factory=Doubts)
    """What the ranks by the other rules are judged by as well."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, ready for JSON."""
        values = self.spectrum.values
        shape, residual = self.spectrum.shape, self.spectrum.residual
        return {
            "source": dict(self.source),
            "contexts": shape[0],
            "vocab": shape[1],
            "embedding_size": self.embedding_size,
            "bound": dict(self.bound),
            "eps": self.eps.to_dict(),
            "method": self.spectrum.method,
            "method_why": self.why,
            "rule": self.rule,
            "rank": asdict(self.rank),
            "rank_centered": asdict(self.rank_centered),
            "rank_by_rule": {rule: int(estimate) for rule, estimate in self._by_rule().items()},
            "effective_rank": {
                name: effective_rank(values, epsilon=float(name), residual=residual) for name in ENERGY_LEFT_OUT
            },
            "entropy_rank": None if residual else entropy_rank(values),
            "stable_rank": stable_rank(values, residual=residual),
            "certificate": self.certificate,
            **{key: report._of_variant() for key, report in self.variants.items()},
            **{finding.key: dict(finding.values) for finding in self.findings},
            "seconds": self.seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
            "version": __version__,
        }

    @property
    def certificate(self) -> dict[str, Any]:
        """What the method checked of the spectrum, and what it does not resolve."""
        return {
            "frobenius_relative_error": self.spectrum.frobenius_relative_error,
            "finite": True,
            "driver": self.spectrum.driver,
            "precision_found": dict(self.precision_found),
            "residual": self.spectrum.residual,
            "error": self.spectrum.error,
            "centered_error": self.spectrum.centered_error,
        }

    def _of_variant(self) -> dict[str, Any]:
        """Return the values of a variant in the dictionary of the whole report."""
        contexts, vocab = self.spectrum.shape
        ranks = {"rank": asdict(self.rank), "rank_centered": asdict(self.rank_centered)}
        return {"contexts": contexts, "vocab": vocab, "bound": dict(self.bound), **ranks}

    def _row_of_variant(self) -> tuple[str, str]:
        ranks = f"{self.rank}, row-centred {self.rank_centered}, σ_1 {self.rank.sigma_1:.4g}"
        tokens = f"the {self.spectrum.shape[1]:,} tokens of the tokenizer alone, renormalized"
        return "rank, no padding", f"{ranks} ({tokens})"

    def _matrices(self) -> list[tuple[str, RankReport]]:
        """Return this report and those of its variants, each with the end of its names."""
        return [("", self), *((", no padding", report) for report in self.variants.values())]

    @property
    def indeterminate(self) -> tuple[str, ...]:
        """Names of the ranks that are indeterminate, with those of the tokenizer's tokens alone."""
        return tuple(
            f"{which}{suffix.replace(', no', ' without')}"
            for suffix, report in self._matrices()
            for which, rank in (("rank", report.rank), ("row-centred rank", report.rank_centered))
            if not rank.determinate
        )

    def summary(self) -> dict[str, Any]:
        """Return the values that a table shows: size, bound, both ranks with their intervals, and a related one."""
        values, rank, centered = self.spectrum.values, self.rank, self.rank_centered
        contexts, vocab = self.spectrum.shape
        return {
            "contexts": contexts,
            "vocab": vocab,
            "embedding_size": self.embedding_size,
            "bound": self.bound["raw"],
            "rank": rank.value,
            "low": rank.low,
            "high": rank.high,
            "determinate": rank.determinate,
            "rank_centered": centered.value,
            "low_centered": centered.low,
            "high_centered": centered.high,
            "determinate_centered": centered.determinate,
            "effective_rank_1e-3": effective_rank(values, epsilon=1e-3, residual=self.spectrum.residual),
            **{key: finding.values[key] for finding in self.findings for key in finding.columns},
            **{
                f"{key}_no_padding": value
                for report in self.variants.values()
                for key, value in report.summary().items()
                if key not in ("contexts", "embedding_size", "effective_rank_1e-3")
            },
        }

    def columns(self) -> dict[str, Any]:
        """Return the embedding size, the bound, and both ranks with their intervals."""
        shown: dict[str, Any] = {"d": self.embedding_size, "bound": self.bound["raw"]}
        for suffix, report in self._matrices():
            shown |= {f"rank{suffix}": _with_interval(report.rank)}
            shown |= {f"row-centred rank{suffix}": _with_interval(report.rank_centered)}
        summary = self.summary()
        for finding in self.findings:
            if finding.columns:
                shown["effective rank"] = summary["effective_rank_1e-3"]
            shown |= {heading: summary[key] for key, heading in finding.columns.items()}
        return shown

    @property
    def verdict(self) -> Verdict:
        """What the ranks say of the output layer, and what to do next."""
        found = next((finding.verdict for finding in self.findings if finding.verdict), None)
        return found or verdict(self, self.spectrum.shape)

    def _by_rule(self) -> dict[str, RankEstimate]:
        return {rule: judge(self.spectrum, self.eps, rule=rule, **self.doubts).raw for rule in RULES}

    def _noise_floor(self) -> str:
        noise = self.eps.noise_norm(self.spectrum.shape)
        above = int((self.spectrum.centered > NOISE_FACTOR * noise).sum())
        return f"seen at σ = {noise:.3g}: {above:,} row-centred singular values stand above twice that"

    def rows(self) -> list[tuple[str, str]]:
        """Return the answer as label and text: the verdict, both ranks, and what to do next."""
        found = self.verdict
        values, residual = self.spectrum.values, self.spectrum.residual
        counts = [effective_rank(values, epsilon=float(name), residual=residual) for name in ENERGY_LEFT_OUT]
        held = ", ".join("unknown" if count is None else f"{count:,}" for count in counts)
        return [
            ("matrix", f"{self._source()}: {self._size()}"),
            ("verdict", found.sentence),
            ("rank", _answer(self.rank)),
            ("row-centred rank", _answer(self.rank_centered)),
            ("effective rank", f"{held} directions hold 99.9, 99.99, 99.999 % of Σσ²"),
            *(report._row_of_variant() for report in self.variants.values()),
            *(row for finding in self.findings if not finding.is_detail for row in finding.rows),
            *([("next", found.next)] if found.next else []),
            ("all numbers", "--details, or .details() in Python"),
        ]

    def _source(self) -> str:
        model = ", ".join(str(self.source[key]) for key in ("head", "quantization") if self.source.get(key))
        text = " ".join(str(self.source[key]) for key in ("corpus", "split") if self.source.get(key))
        return f"{self.source['path']}{model and f' ({model})'}{text and f' on {text}'}"

    def _size(self) -> str:
        dropped = f", {n:,} columns with -inf dropped" if (n := self.source.get("dropped_columns")) is not None else ""
        named = {"matrix": ("rows", "columns"), "extended": ("pairs of future and next token", "histories")}
        rows, columns = named.get(self.source.get("kind", ""), ("contexts", "tokens"))
        T, M = self.spectrum.shape
        return f"{T:,} {rows} × {M:,} {columns}{dropped}"

    def details(self) -> str:
        """Return every number of the report as aligned lines."""
        return aligned(self.all_rows())

    def all_rows(self) -> list[tuple[str, str]]:
        """Return every number of the report as label and text."""
        d, found = self.to_dict(), self.verdict
        by_rule = ", ".join(f"{rule} {_with_interval(estimate)}" for rule, estimate in self._by_rule().items())
        effective = ", ".join(
            f"{'an unknown number' if value is None else format(value, ',')} for ε = {epsilon}"
            for epsilon, value in d["effective_rank"].items()
        )
        entropy = "unknown" if d["entropy_rank"] is None else f"{d['entropy_rank']:.1f}"
        return [
            ("verdict", found.sentence),
            *([("next", found.next)] if found.next else []),
            ("source", self._source()),
            ("matrix", self._size()),
            ("embedding size", "unknown" if self.embedding_size is None else f"{self.embedding_size:,}"),
            ("effective rank", f"singular values that hold all of Σσ² but a share ε: {effective}"),
            ("entropy, stable rank", f"{entropy}, {d['stable_rank']:.2f}"),
            *evidence_rows(self, self.spectrum.method, self.why),
            ("by rule", by_rule),
            *([("rounding", str(self.eps.rounding))] if self.eps.rounding else []),
            *([("noise floor", self._noise_floor())] if self.eps.noise else []),
            *(report._row_of_variant() for report in self.variants.values()),
            *(row for finding in self.findings for row in finding.rows),
        ]

    @property
    def limits(self) -> Limits:
        """Return the tolerances and the bounds, which figures of the spectrum mark."""
        bound = (self.bound["raw"], self.bound["centered"])
        return Limits(self.rank.tolerance, self.rank_centered.tolerance, *bound)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        label: str | None = None,
        part: str = "raw",
        log: bool = True,
        style: str = "screen",
    ) -> Axes:
        """Draw the singular values against their index, with the tolerance and the bound.

        Args:
            ax: axes to draw into; by default those of a new figure.
            label: name in the legend; by default the last part of the source's path.
            part: ``"raw"``, ``"row-centred"``, or ``"both"`` for a panel of each.
            log: whether to leave out the panel of the cumulative distribution; see `Spectrum.plot`.
            style: one of ``plotting.STYLES``, for a new figure.
        """
        label = short_names([self.name])[0] if label is None else label
        return self.spectrum.plot(ax, label=label, limits=self.limits, part=part, log=log, style=style)


def _answer(rank: RankEstimate) -> str:
    if rank.determinate:
        return f"{rank}, determinate"
    if rank.at_least:
        return str(rank)
    return f"between {rank.low:,} and {rank.high:,}, indeterminate" if rank.high else "unknown"


def _with_interval(rank: RankEstimate) -> str:
    """Return the number of values that count, followed by the interval if it is indeterminate."""
    if rank.determinate or rank.at_least or not rank.high:
        return str(rank)
    return f"{rank.value:,} ({rank.low:,} to {rank.high:,})"


def evidence_rows(report: Any, method: str, why: str) -> list[tuple[str, str]]:
    """Return what the ranks of a report, measured or saved (`SavedRank`), rest on, as label and text."""
    eps, bound, certificate = report.eps, report.bound, report.certificate
    limits = (
        "none"
        if None in (bound["raw"], bound["centered"])
        else f"{bound['raw']:,} raw, {bound['centered']:,} row-centred"
    )
    outside = f" but for a residual of {certificate['residual']:.3g}" if certificate.get("residual") else ""
    resolved = f"; the method resolves no value below {certificate['error']:.2g}" if certificate.get("error") else ""
    return [
        ("bound", f"{limits} ({bound['why']})"),
        ("rank", _evidence(report.rank, report.rule)),
        ("row-centred rank", _evidence(report.rank_centered, report.rule)),
        ("eps", f"{eps.value:.3g} ({eps.dtype or 'given'}{', assumed' if eps.assumed else ''})"),
        ("method", method + (f" ({why})" if why else "")),
        ("certificate", f"Σσ² within {certificate['frobenius_relative_error']:.1e} of ‖A‖²{outside}{resolved}"),
        ("cost", f"{report.seconds:,.1f} s, {report.peak_memory_bytes / 2**30:.2f} GiB at most"),
    ]


def _evidence(rank: RankEstimate, rule: str) -> str:
    gap = "" if rank.gap is None else f", gap {rank.gap:.3g}"
    evidence = f"tolerance {rank.tolerance:.3g}, σ_1 {rank.sigma_1:.4g}{gap}"
    if rank.determinate:
        return f"{rank} (determinate; {evidence})"
    if not rank.high:
        return f"unknown (the precision is too low for a matrix of this size: roundoff may exceed σ_1; {evidence})"
    place = "before the largest gap" if rule == "gap" else "at the tolerance"
    interval = f"between {rank.low:,} and {rank.high:,}" if rank.at_least else f"{rank.value:,} {place}"
    doubt = f"; {rank.doubt}" if rank.doubt else ""
    return f"{rank} (indeterminate: {interval}; {evidence}{doubt})"
