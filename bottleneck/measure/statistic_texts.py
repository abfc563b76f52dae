"""The statistics of a comparison as texts: their labels, and numbers with as many digits as are known."""

from __future__ import annotations

import math
from collections.abc import Mapping

from .divergences import DRAFTS, Estimate

MOST_DIGITS = 6
"""Largest number of decimals; smaller numbers have an exponent."""
EXACT_DIGITS = 12
"""Decimals of the ends of an interval that float64 keeps."""
LABELS = {
    "perplexity": "perplexity of Q",
    "log_ratio": "ln PPL(Q)/PPL(P)",
    "perplexity_ratio": "PPL(Q)/PPL(P)",
    "kl": "KL(P‖Q), nats",
    "kl_llama_cpp": "KL as in llama.cpp",
    "kl_50": "KL median",
    "kl_90": "KL 90 %",
    "kl_95": "KL 95 %",
    "kl_99": "KL 99 %",
    "kl_99.9": "KL 99.9 %",
    "kl_max": "KL maximum",
    "reverse_kl": "KL(Q‖P), nats",
    "jsd": "Jensen–Shannon, nats",
    "tv": "total variation",
    "acceptance": "acceptance 1 − TV",
    "tokens_a_step": f"tokens a step, γ = {DRAFTS}",
    "delta_p": "mean Δp",
    "delta_p_rms": "RMS Δp",
    "delta_p_1": "Δp 1 %",
    "delta_p_5": "Δp 5 %",
    "delta_p_50": "Δp median",
    "delta_p_95": "Δp 95 %",
    "delta_p_99": "Δp 99 %",
    "same_top": "same top token",
    "top_5": "top-5 overlap",
    "coverage": "seen probability of P",
    "kl_floor": "KL of rounding P",
}
"""Labels of the statistics of a model Q and its reference P."""
SHARES = ("acceptance", "same_top", "top_5", "coverage")
"""Statistics that are shown in percent."""


def table_cells(statistics: Mapping[str, Estimate]) -> dict[str, str]:
    """Return statistics by their labels, as the cells of a table."""
    return {label: statistic_text(name, statistics, short=True) for name, label in LABELS.items() if name in statistics}


def statistic_text(name: str, statistics: Mapping[str, Estimate], *, short: bool = False) -> str:
    """Return a statistic with its standard error and roundoff, or for a table with one digit of its standard error.

    That of a part of a distribution is shown as its interval, unless both ends have the same digits. In a table so is
    one whose roundoff exceeds its standard error, and of roundoff alone the upper end is shown, with two of these.
    """
    estimate = statistics[name]
    if estimate.value is None:
        return "∞"
    scale, unit = (100.0, " %") if name in SHARES else (1.0, "")
    value, error, half = (
        scale * (each or 0.0) for each in (estimate.value, estimate.standard_error, estimate.roundoff)
    )
    is_partial, is_wide = "coverage" in statistics, short and half > error
    most = scale if unit else DRAFTS + 1.0 if name == "tokens_a_step" else math.inf
    if short and not is_partial and abs(value) <= half > 0:
        return f"≤ {min(abs(value) + half + 2 * error, most):.{2 + bool(unit)}g}{unit}"
    if is_partial or is_wide:
        ends = (round(value - half, EXACT_DIGITS) + 0.0, round(value + half, EXACT_DIGITS) + 0.0)  # no −0
        low, high = (f"{min(end, most):.{4 - short}g}" for end in ends)
        if estimate.roundoff is None or low != high:
            within = f"≥ {low}" if estimate.roundoff is None else f"{low} to {high}"
            return within + ("" if estimate.standard_error is None else f" ± {error:.{2 - short}g}") + unit
    error *= is_partial or not is_wide
    digits = max(0, 1 - short - math.floor(math.log10(error))) if error else 0
    if error and digits <= MOST_DIGITS - short:
        text = f"{value:.{digits}f} ± {error:.{digits}f}{unit}"
    else:
        text = f"{value:.{max(4 - 2 * short * bool(error), min(len(f'{value:.0f}'), 12))}g}"
        text += ("" if estimate.standard_error is None or is_wide else f" ± {error:.{2 - short}g}") + unit
    return text + (f", roundoff {half:.1g}" if not short and estimate.roundoff is not None else "")
