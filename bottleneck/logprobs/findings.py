"""What a rank report says beside the rank."""

from __future__ import annotations

import math
from dataclasses import asdict

from ..spectrum import Precision, RankReport, Rounding, Spectrum
from ..spectrum.report import Finding
from .base import Source
from .head_analysis import head_analysis
from .hidden_size import finding
from .sources import HuggingFaceSource


def findings_of(source: Source, spectrum: Spectrum, *, eps: Precision, hidden_size: bool, alone: bool) -> list[Finding]:
    """Return what a source's kind adds to its report, and what was asked for.

    Args:
        source: what was measured.
        spectrum: what came out.
        eps: roundoff of its numbers.
        hidden_size: whether to estimate the hidden size from the spectrum.
        alone: whether this process has all contexts: an analysis of H needs them.
    """
    found = [head_analysis(source)] if isinstance(source, HuggingFaceSource) and alone else []
    return [*found, finding(spectrum, eps=eps)] if hidden_size else found


def of_variant(key: str, report: RankReport) -> Finding:
    """Return the finding that a variant of a source's matrix makes, from its own report."""
    T, M = report.spectrum.shape
    values = {
        "contexts": T,
        "vocab": M,
        "bound": dict(report.bound),
        "rank": asdict(report.rank),
        "rank_centered": asdict(report.rank_centered),
    }
    text = (
        f"{report.rank}, row-centred {report.rank_centered}, σ_1 {report.rank.sigma_1:.4g} "
        f"(the {M:,} tokens of the tokenizer alone, renormalized)"
    )
    return Finding(key, values, (("rank, no padding", text),))


def unjudged(rounding: Rounding) -> Finding:
    """Return the finding of a rounding that the ranks are not judged by, because eps was given."""
    text = f"{rounding}; the ranks are not judged by it, because eps was given"
    step = None if math.isinf(rounding.step) else rounding.step
    return Finding("rounding_seen", {**asdict(rounding), "step": step}, (("rounding", text),))
