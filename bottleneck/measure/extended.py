"""The low-rank structure of an extended logit matrix: its power law, and the divergence of low-rank approximations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from ..core.checks import shown, typed
from ..errors import ConfigurationError
from ..results.quantity import Quantity
from ..sources import ExtendedSource
from ..spectrum import numerical_rank
from ..spectrum.gram import RESOLUTION
from ..theory import PowerLaw, power_law

GROUPS = 10
"""Number of groups of futures for the jackknife, each left out once."""


@dataclass(frozen=True, eq=False)
class ExtendedStructure:
    """Singular values of an extended logit matrix and the divergence of its best low-rank approximations."""

    values: NDArray[np.float64]
    """(histories,), descending."""
    law: PowerLaw
    """Power law fitted to the first half of the values, without those at roundoff, but to three at least; its interval
    is that of the regression line."""
    low: float | None
    """Lower end of the exponent's 95 % confidence interval over futures, from a jackknife that leaves out a tenth at a
    time. ``None`` for a single future."""
    high: float | None
    ranks: tuple[int, ...]
    kl: tuple[float, ...]
    """For each rank r, the mean over histories and futures of KL(P ‖ Q_r) in nats, where Q_r is the softmax of the best
    rank-r approximation."""


@typed
def extended_structure(source: ExtendedSource, *, ranks: Sequence[int] | None = None) -> ExtendedStructure:
    r"""Measure the power law of σ_i and the average KL divergence of the best rank-r approximation for each r.

    The first pass over the futures computes the Gram matrix of the histories, :math:`G = L L^⊤`, in float64, whose
    eigenvalues are σ². The second computes :math:`L_r = V_r V_r^⊤ L` (Eckart and Young), one future at a time. Memory
    holds one future's block and a few matrices of histories × histories.

    Args:
        source: an extended logit matrix, see `extended_logits`.
        ranks: values of r; by default powers of two up to half of the number of histories.

    Raises:
        ConfigurationError: for ranks outside 1 to the number of histories, or too few histories for a fit.
    """
    rows, count = len(source.histories), len(source.futures)
    chosen = [2**k for k in range(rows.bit_length()) if 2 ** (k + 1) <= rows]
    if ranks is not None:
        given = np.asarray(ranks)
        if given.ndim != 1 or (given.size and (given.dtype.kind not in "iu" or given.min() < 1 or given.max() > rows)):
            raise ConfigurationError(f"ranks must lie between 1 and the {rows} histories, not {shown(ranks)}")
        chosen = sorted(given.tolist())
    groups = np.array_split(np.arange(count), min(GROUPS, count))
    parts: list[NDArray[np.float64]] = []
    for group in groups:
        blocks = (source.future(int(future)).astype(np.float64) for future in group)
        parts.append(sum((block.T @ block for block in blocks), np.zeros((rows, rows))))
    gram = np.sum(parts, axis=0)
    squares, V = np.linalg.eigh(gram)
    values, V = np.sqrt(squares.clip(min=0))[::-1], V[:, ::-1]
    shape = (rows, count * source.shape[1])
    firm = numerical_rank(values, shape=shape, eps=source.precision.value, floor=RESOLUTION * values[0]).low
    law = power_law(values, last=max(3, min(rows // 2, firm)))
    low = high = None
    if len(groups) > 1:
        left_out = np.array([_exponent(gram - part, law) for part in parts])
        size = len(parts)
        error = float(np.sqrt((size - 1) / size * ((left_out - left_out.mean()) ** 2).sum()))
        width = float(stdtrit(size - 1, 0.975)) * error
        low, high = law.exponent - width, law.exponent + width
    kl = np.zeros(len(chosen))
    for future in range(count if chosen else 0):
        kl += _divergences(source.future(future).astype(np.float64), V, chosen)
    return ExtendedStructure(values, law, low, high, tuple(chosen), tuple((kl / count).tolist()))


def _exponent(gram: NDArray[np.float64], law: PowerLaw) -> float:
    values = np.sqrt(np.linalg.eigvalsh(gram).clip(min=0))
    return power_law(values, first=law.first, last=law.last).exponent


def _divergences(block: NDArray[np.float64], V: NDArray[np.float64], ranks: Sequence[int]) -> NDArray[np.float64]:
    """Return the mean KL divergence over histories for each rank, given one future's logits (M, histories)."""
    log_p = block - np.logaddexp.reduce(block, 0)
    p = np.exp(log_p)
    coordinates = block @ V[:, : max(ranks)]
    logits, done, means = np.zeros_like(block), 0, []
    for rank in ranks:
        logits += coordinates[:, done:rank] @ V[:, done:rank].T
        done = rank
        means.append(float((p * (log_p - logits + np.logaddexp.reduce(logits, 0))).sum(0).mean()))
    return np.array(means)


def power_law_quantity(values: NDArray[np.float64], firm: int) -> Quantity:
    """Return the power law of an extended logit matrix's singular values; those after ``firm`` are roundoff."""
    if (last := min(len(values) // 2, firm)) < 3:
        return Quantity("power_law", {}, "power law", text="too few singular values for a line")
    law = power_law(values, last=last)
    text = (
        f"σ_i ~ i^−{law.exponent:.3f} ({law.low:.3f} to {law.high:.3f}) over i = {law.first:,} to {law.last:,}, "
        f"R² = {law.r_squared:.3f}"
    )
    return Quantity("power_law", law, "power law", text=text)
