"""Sets of tokens that cannot be the most likely ones together (Chang and McCallum 2022)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..core.checks import check_above_zero, check_positive, typed
from ..errors import ConfigurationError, MatrixError
from .argmax_search import Ids, Layer
from .hulls import Certificate, decide
from .inputs import EPS, Floats, real_matrix, real_vector, scaled

PAIRS = 1 << 22
"""Number of pairs of tokens whose sums are sorted at once."""
CANDIDATES = 50_000_000
"""Largest number of pairs of pairs that are compared."""
ROUNDOFF = 16 * EPS


@dataclass(frozen=True, eq=False)
class Parallelograms:
    """Quadruples (a, b, c, d) with w_a + w_b = w_c + w_d, within a tolerance."""

    tokens: Ids
    """(n, 4), a < b, c < d and a < c: the diagonals are a, b and c, d."""
    residuals: Floats
    """(n,), ‖w_a + w_b − w_c − w_d‖. For ‖h‖ = 1 the lower logit of one diagonal exceeds the higher logit of the other
    by at most half of this."""
    complete: bool
    """Whether ``tokens`` holds all parallelograms; otherwise the limit was reached."""


@dataclass(frozen=True, eq=False)
class Separation:
    """Whether some context vector puts every token of one set above every token of another."""

    possible: bool | None
    """``None`` if the linear program was stopped, or its margin is within roundoff."""
    h: Floats | None
    """(d,): the context vector, if it is possible."""
    above: Floats | None
    """Weights of the first set, of sum 1, if it is not possible."""
    below: Floats | None
    """Weights of the second set, of sum 1, with the same mean embedding: the convex hulls meet."""


@typed
def parallelograms(W: Any, *, tolerance: float = ROUNDOFF, limit: int = 1000) -> Parallelograms:
    r"""Find four embeddings in a parallelogram: neither diagonal can hold the two largest probabilities alone.

    If :math:`w_a + w_b = w_c + w_d`, the logits of a and b have the same sum as those of c and d for every h: the
    logits of a and b cannot both exceed those of c and d, nor conversely (Chang and McCallum 2022, §3; without a bias,
    or with :math:`b_a + b_b = b_c + b_d`). Sums of pairs are compared along one direction, block by block, and in full
    if they agree there, which misses none within the tolerance. Of equal rows only the first is used, because two pairs
    of equal rows always form a parallelogram.

    Args:
        W: (M, d) output embeddings.
        tolerance: largest residual, relative to the largest norm of a centred embedding; a larger one takes more time.
            The default is float64's roundoff: a parallelogram that was rounded to float32 needs about 10⁻⁶.
        limit: largest number of parallelograms to return.

    Raises:
        MatrixError: for numbers that are not finite, or more than `CANDIDATES` near pairs.
        ConfigurationError: for a tolerance that is negative, or a limit below one.

    Example:
        >>> words = [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 2.0], [5.0, 7.0]]
        >>> parallelograms(words).tokens
        array([[0, 3, 1, 2]])
    """
    check_positive(limit=limit)
    if not tolerance >= 0:
        raise ConfigurationError(f"the tolerance must be at least 0, not {tolerance}")
    everything, exponent = scaled(real_matrix(W, "W"))
    ids = np.sort(np.unique(everything, axis=0, return_index=True)[1])
    rows = everything[ids] - everything.mean(0)
    allowed = tolerance * float(np.linalg.norm(rows, axis=1).max())
    direction = np.random.default_rng(0).standard_normal(rows.shape[1])
    along = rows @ (direction / np.linalg.norm(direction))
    order = np.argsort(along)
    quadruples: set[tuple[int, int, int, int]] = set()
    compared = 0
    for first, second in _close_sums(along[order], allowed + ROUNDOFF * abs(along).max()):
        compared += len(first)
        if compared > CANDIDATES:
            raise MatrixError(
                f"more than {CANDIDATES:,} pairs of {len(ids):,} tokens are within {allowed:.3g} along one direction: "
                "lower the tolerance or give fewer rows"
            )
        a, b, c, d = (order[part] for part in (*first.T, *second.T))
        near = np.linalg.norm(everything[ids[a]] + everything[ids[b]] - everything[ids[c]] - everything[ids[d]], axis=1)
        distinct = (a != c) & (a != d) & (b != c) & (b != d)
        for quadruple in ids[np.stack([a, b, c, d], 1)[distinct & (near <= allowed)]].tolist():
            (a_, b_), (c_, d_) = sorted((tuple(sorted(quadruple[:2])), tuple(sorted(quadruple[2:]))))
            quadruples.add((a_, b_, c_, d_))
        if len(quadruples) > limit:
            break
    tokens = np.array(sorted(quadruples)[:limit], dtype=np.int64).reshape(-1, 4)
    a, b, c, d = (everything[column] for column in tokens.T)
    residuals = np.ldexp(np.linalg.norm(a + b - c - d, axis=1), exponent)
    return Parallelograms(tokens, residuals, len(quadruples) <= limit)


def _close_sums(x: Floats, within: float) -> Iterator[tuple[Ids, Ids]]:
    """Yield pairs of pairs (n, 2), (n, 2) of indices into ascending x whose sums differ by at most ``within``."""
    M = len(x)
    generator = np.random.default_rng(1)
    parts = max(1, -(-(M * (M - 1) // 2) // PAIRS))
    sample = x[generator.integers(0, M, 1 << 16)] + x[generator.integers(0, M, 1 << 16)]
    edges = np.concatenate([[-np.inf], np.quantile(sample, np.arange(1, parts) / parts), [np.inf]])
    places = np.arange(M)
    for low, high in pairwise(edges):
        # Pairs at the upper edge belong to the next part as well, so that close pairs on both sides are compared.
        start = np.maximum(np.searchsorted(x, low - x, side="left"), places + 1)
        stop = np.maximum(np.searchsorted(x, high + 2 * within - x, side="right"), start)
        counts = stop - start
        i = np.repeat(places, counts)
        j = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(start, counts)
        sums = x[i] + x[j]
        order = np.argsort(sums, kind="stable")
        i, j, sums = i[order], j[order], sums[order]
        for step in range(1, len(sums)):
            close = np.flatnonzero(sums[step:] - sums[:-step] <= within)
            if not close.size:
                break
            other = close + step
            yield np.stack([i[close], j[close]], 1), np.stack([i[other], j[other]], 1)


@typed
def separation(
    W: Any, above: Sequence[int], below: Sequence[int] | None = None, *, bias: Any = None, seconds: float | None = None
) -> Separation:
    r"""Decide whether some h puts every token of one set strictly above every token of another.

    Such an h exists unless there are :math:`α, β ≥ 0`, each of sum 1, with :math:`\sum α_g w_g = \sum β_s w_s` and
    :math:`\sum α_g b_g ≤ \sum β_s b_s`. A linear program decides. Any d + 2 tokens have two subsets whose convex hulls
    meet (Radon), so that some subset cannot be the modes (Chang and McCallum 2022, theorem 1, for dependent
    embeddings).

    Args:
        W: (M, d) output embeddings.
        above: ids of the tokens whose logits must be larger.
        below: ids of the tokens whose logits must be smaller; by default all others, so that ``above`` are the modes.
        bias: (M,), b.
        seconds: time limit of the program.

    Raises:
        MatrixError: for numbers that are not finite, or shapes that do not fit.
        ConfigurationError: for sets that are empty, share a token, or hold an id outside the vocabulary.

    Example:
        >>> square = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
        >>> separation(square, [0, 3]).possible, separation(square, [0, 1]).possible
        (False, True)
    """
    W = real_matrix(W, "W")
    b = np.zeros(len(W)) if bias is None else real_vector(bias, len(W), "the bias")
    check_above_zero(seconds=seconds)
    over = _ids(above)
    under = np.setdiff1d(np.arange(len(W)), over) if below is None else _ids(below)
    everything = np.concatenate([over, under])
    inside = bool(((everything >= 0) & (everything < len(W))).all())
    if not (over.size and under.size and inside) or np.isin(over, under).any():
        raise ConfigurationError(
            f"the two sets must hold different ids from 0 to {len(W) - 1}, at least one each, not {above} and {below}"
        )
    (W, w_exponent), (b, b_exponent) = scaled(W), scaled(b)
    decision = decide(Layer(W, b), over, under, under, seconds=seconds)
    if decision is None:
        return Separation(None, None, None, None)
    if not isinstance(decision, Certificate):
        return Separation(True, np.ldexp(decision, b_exponent - w_exponent), None, None)
    weights = np.zeros(len(W))
    weights[decision.tokens] = decision.weights
    return Separation(False, None, decision.above, weights[under])


def _ids(tokens: Any) -> Ids:
    """Return token ids as an array, which is empty for anything else."""
    ids = np.asarray(tokens)
    return ids.astype(np.int64) if ids.ndim == 1 and ids.dtype.kind in "iu" else np.zeros(0, dtype=np.int64)
