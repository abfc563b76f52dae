"""Whether two matrices of log-probabilities have their rows, and their columns, in one order."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from .divergences import Matrix

ROWS, FEWEST = 32, 8
"""Rows that are looked at, and the fewest that tell."""
FARTHEST = 2
"""Most rows by which one is looked for beside the other."""
CLOSER = 0.5
"""Share of the divergence of rows of one number below which most rows shifted against each other are closer."""
MOST = 0.9
"""Share of the rows that have to be closer."""
TOKENS, REORDERED = 64, 0.1
"""Likeliest tokens whose columns are looked for, and the share of the squared distance below which one is found."""
LEAST = 1e-3
"""Least mean KL in nats, and mean square of what a token's log-probabilities vary by: less tells nothing."""
LOWEST = -1e4
"""What stands for log 0."""


def misalignment(P: Matrix, Q: Matrix) -> str:
    """Return a sentence if rows or columns look shifted or in another order, or an empty string.

    Args:
        P: logits or log-probabilities of the first contexts under the reference, (n, M), −∞ where they are unseen.
        Q: those under the model, (n, M).
    """
    P, Q = (np.maximum(each[:ROWS].astype(np.float64), LOWEST) for each in (P, Q))
    known = np.flatnonzero((P > LOWEST).all(0) & (Q > LOWEST).all(0))
    P, Q = (each - logsumexp(each, 1, keepdims=True) for each in (P, Q))
    p = np.exp(P)
    kl = (p * P).sum(1)[:, None] - p @ Q.T
    own, n = kl.diagonal(), len(P)
    if n < FEWEST + FARTHEST or own.mean() < max(LEAST, CLOSER * kl.mean()):
        return ""
    for shift in sorted(range(-FARTHEST, FARTHEST + 1), key=abs)[1:]:
        beside, here = kl.diagonal(shift), own[max(0, -shift) : n - max(0, shift)]
        if np.mean(beside < CLOSER * here) >= MOST:
            rows = f"row t of P is closer to row t {'+' if shift > 0 else '−'} {abs(shift)} of Q than to row t"
            return f"{rows} (KL {beside.mean():.2g}, not {here.mean():.2g}): the rows of one look shifted"
    tokens = known[np.argsort(-p[:, known].mean(0), kind="stable")[:TOKENS]]
    if len(tokens) < FEWEST:
        return ""
    P, Q = P - P.mean(0), Q - Q.mean(0)  # two tokens may be equally frequent
    columns = P[:, tokens].T
    far = (columns**2).sum(1)[:, None] - 2 * columns @ Q + (Q**2).sum(0)
    nearest = far.argmin(1)
    moved = (nearest != tokens) & (far.min(1) < REORDERED * np.take_along_axis(far, tokens[:, None], 1)[:, 0])
    moved &= (columns**2).mean(1) > LEAST
    if moved.mean() < MOST:
        return ""
    return (
        f"{moved.sum()} of the {len(tokens)} likeliest tokens behave in P as other tokens do in Q, such as "
        f"{tokens[moved][0]} as {nearest[moved][0]}: the tokens of one look to be in another order, or of another "
        "vocabulary"
    )
