"""Estimate the hidden size of a model from its outputs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.checks import typed
from ..errors import ConfigurationError, MatrixError, Parameter
from ..results.quantity import Quantity
from ..spectrum import Precision, Spectrum, judge, precision
from ..spectrum.rules import NOISE_FACTOR

CLEAR = 2.0
"""Least ratio of the largest gap to the next one."""
STRAY = 5.0
"""Ratio to the roundoff above which a singular value behind the gap is a direction of the model."""
SHOWN = 4
"""Least ratio of the number of directions to d where noise takes up those behind d: in fewer, a second group of
directions looks like noise."""
NEIGHBOURS = 5
"""Number of ratios reported on either side of the gap."""


@dataclass(frozen=True)
class HiddenSizeEstimate:
    """An estimate of the hidden size from the row-centred spectrum; ``int(estimate)`` is the size."""

    value: int
    """d, the number of singular values before the largest ratio of neighbours."""
    gap: float
    """The largest ratio, σ_d / σ_{d+1}."""
    next_gap: float
    """The second largest ratio of neighbours among the candidates and the five ratios before them."""
    margin: float
    """gap / next_gap, well above 1 for a clear gap."""
    sigma_d: float
    sigma_next: float
    roundoff: float
    """Tolerance below which a singular value is roundoff."""
    around: Mapping[int, float]
    """σ_i / σ_{i+1} for the indices i near d."""

    def __int__(self) -> int:
        """Return d."""
        return self.value


@typed
def estimate_hidden_size(spectrum: Spectrum, *, eps: float | Precision) -> HiddenSizeEstimate:
    r"""Estimate d from the largest gap of the row-centred spectrum.

    Row-centred log-probabilities, like row-centred logits, are :math:`H (W - 1\bar w^⊤)^⊤`, so d singular values exceed
    roundoff. An output bias adds one, and a LayerNorm without offset before the output layer removes one. Values below
    roundoff are raised to it first, because their ratios are noise. Values of more than ten times the roundoff are
    directions that exist, so a gap among these, as after the direction of the words' frequencies, is not a candidate.

    Args:
        spectrum: the spectrum of T contexts and M tokens, both more than d.
        eps: relative roundoff of the outputs.

    Raises:
        MatrixError: for too few values, for none below roundoff (T or M is at most d), or when no gap is clear.

    References:
        Carlini et al. 2024, *Stealing Part of a Production Language Model*, §4.1 (arXiv 2403.06634), who take the
        largest gap of the logits' spectrum; Finlayson et al. 2024, *Logits of API-Protected LLMs Leak Proprietary
        Information* (arXiv 2403.09539).
    """
    size = min(spectrum.shape[0], spectrum.shape[1] - 1)
    known = eps if isinstance(eps, Precision) else precision(eps)
    rank = judge(spectrum, known).centered
    floor, least = rank.tolerance, max(rank.low, 1)
    if known.noise and not spectrum.residual:  # seen, where the tolerance estimates it
        floor = max(NOISE_FACTOR * known.noise_norm(spectrum.shape), spectrum.centered_error)
    values = np.maximum(spectrum.centered[:size], floor)
    if size < 1 or values[0] <= floor:
        raise MatrixError("no row-centred singular value rises above roundoff: the rows are constant")
    if values.size < 3 or values[-1] > floor:
        raise MatrixError(
            f"none of the {values.size:,} row-centred singular values is roundoff, so the hidden size is "
            f"{values.size:,} or more, or the outputs are not log-linear: measure more contexts and tokens than the "
            "hidden size",
            *((", or use a larger ", Parameter("width")) if spectrum.residual else ()),
        )
    ratios = values[:-1] / values[1:]
    best = least - 1 + int(np.argmax(ratios[least - 1 :]))
    others = np.delete(ratios, best)[max(1, least - 1 - NEIGHBOURS) :]  # the first may be that of the frequencies
    second = float(others.max(initial=1.0))
    if values[best + 1] > STRAY * floor or ratios[best] < CLEAR * second:
        raise MatrixError(
            f"no gap is clear: σ_{best + 1} / σ_{best + 2} is at least {ratios[best]:.3g}, the next largest ratio "
            f"{second:.3g}, and σ_{best + 2} is {values[best + 1] / floor:.3g} times the roundoff; the row-centred "
            f"rank is {rank}"
        )
    directions = min(size, *(known.distinct or spectrum.shape))
    if known.noise and not rank.determinate and SHOWN * (best + 1) > directions:
        raise MatrixError(
            f"{best + 1:,} of {directions:,} directions stand above what may be noise, and too few are left to tell: "
            "measure more contexts and tokens"
        )
    near = range(max(0, best - NEIGHBOURS), min(ratios.size, best + NEIGHBOURS + 1))
    return HiddenSizeEstimate(
        value=best + 1,
        gap=float(ratios[best]),
        next_gap=second,
        margin=float(ratios[best]) / second,
        sigma_d=float(spectrum.centered[best]),
        sigma_next=float(spectrum.centered[best + 1]),
        roundoff=floor,
        around={index + 1: float(ratios[index]) for index in near},
    )


def hidden_size(spectrum: Spectrum, eps: Precision, warning: str, embedding_size: int | None = None) -> Quantity:
    """Return the hidden size as a quantity, or the reason why it is unknown.

    Args:
        spectrum: the spectrum.
        eps: roundoff of the outputs, and how many rows and columns differ: repeated ones end the spectrum as d does.
        warning: what makes any rank doubtful, or an empty string.
        embedding_size: the size of the output layer, if the model is known.
    """
    key = "hidden_size_estimate"
    try:
        if warning:
            raise MatrixError(warning)
        estimate = estimate_hidden_size(spectrum, eps=eps)
        rows, columns = eps.distinct or spectrum.shape
        if estimate.value >= min(rows, columns) - 1:
            raise MatrixError(
                f"the matrix has only {rows:,} different rows and {columns:,} different columns, and "
                f"{estimate.value:,} directions: measure more different contexts and tokens than the hidden size"
            )
    except MatrixError as error:
        return Quantity(key, {"value": None, "why": str(error)}, "hidden size", text=f"unknown: {error}")
    text = (
        f"{estimate.value:,} (σ_{estimate.value} / σ_{estimate.value + 1} at least {estimate.gap:.3g}, the next "
        f"largest ratio {estimate.next_gap:.3g}); an output bias makes it one too many, a norm that subtracts the mean "
        "and adds nothing one too few"
    )
    if embedding_size is not None:
        text += f"; the output layer's own size is {embedding_size:,}"
    values = asdict(estimate) | {"around": {str(index): ratio for index, ratio in estimate.around.items()}}
    return Quantity(key, values, "hidden size", text=text)


@typed
def logits_from_top_k(
    query: Callable[[Any, Mapping[int, float]], Mapping[int, float]],
    contexts: Iterable[Any],
    *,
    tokens: Iterable[int],
    k: int,
    bias: float = 100.0,
) -> NDArray[np.float64]:
    r"""Return logits, up to a constant per row, from an interface that returns only the k likeliest tokens.

    A bias B on k − 1 tokens puts these and the context's likeliest token r among the k likeliest, and
    :math:`z_i - z_r = (\log P_B(i) - B) - \log P_B(r)`. All n tokens take ⌈n / (k − 1)⌉ queries per context.

    Args:
        query: function of a context and biases by token that returns log-probabilities by token, at least the k
            largest.
        contexts: contexts to pass to ``query``.
        tokens: tokens of the columns, more than the hidden size.
        k: number of log-probabilities in an answer, at least 2.
        bias: B, larger than any difference of two logits, and small enough for the answers' precision.

    Returns:
        Float64, (contexts, tokens); after row-centring or normalization, it equals that of log P.

    Raises:
        ConfigurationError: for k below 2 or no tokens.
        MatrixError: when an answer lacks a requested token because the bias is too small.

    References:
        Carlini et al. 2024, §5.1 (arXiv 2403.06634).
    """
    ids = np.asarray(list(tokens))
    columns = ids.tolist() if ids.ndim == 1 and ids.dtype.kind in "iu" else []
    if k < 2 or not columns:
        raise ConfigurationError(f"k must be at least 2 and tokens not empty, not k = {k} and {len(columns)} tokens")
    rows = []
    for number, context in enumerate(contexts):
        plain = query(context, {})
        reference = max(plain, key=plain.__getitem__)
        logits = {reference: 0.0}
        others = [token for token in columns if token != reference]
        for start in range(0, len(others), k - 1):
            group = others[start : start + k - 1]
            answer = query(context, dict.fromkeys(group, bias))
            if missing := [token for token in (*group, reference) if token not in answer]:
                raise MatrixError(
                    f"the answer for context {number} lacks token {missing[0]}: use a larger bias than {bias:g}, or "
                    f"ask for fewer than {k} tokens at once"
                )
            logits.update({token: (answer[token] - bias) - answer[reference] for token in group})
        rows.append([logits[token] for token in columns])
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(columns))
