"""How far apart the next-token distributions of different contexts are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ConfigurationError, MatrixError
from .spectrum.compute import checked

Blocks = Callable[[], Iterable[Any]]

LARGEST_LOG_SUM = 0.5
"""Nats by which log Σ P of a row may be off: no rounding comes near it, and probabilities or logits exceed it."""


@dataclass(frozen=True)
class PairwiseKLD:
    """An expected pairwise Kullback-Leibler divergence; ``float(estimate)`` is its value."""

    kld: float
    """Mean of KL(P(·|c) ‖ P(·|c′)) over pairs of contexts, in nats."""
    pairs: str | int
    """``"all"`` for all T² ordered pairs, c = c′ included, or the number of pairs drawn from them."""
    standard_error: float | None
    """Of the mean, for drawn pairs; ``None`` when exact."""
    contexts: int
    """T."""
    vocab: int
    """M."""

    def __float__(self) -> float:
        """Return the divergence in nats."""
        return self.kld


def pairwise_kld(
    log_probs: Any, *, pairs: str | int = "all", seed: int = 0, shape: tuple[int, int] | None = None
) -> PairwiseKLD:
    r"""Return the expected pairwise KL divergence of the rows of a log-probability matrix (MoS paper, appendix C.1).

    Over all T² ordered pairs it needs one pass and no pair is formed:

    .. math:: E_{c,c'}[KL(P_c ‖ P_{c'})] = E_c \sum_x P_c(x) \log P_c(x) - \sum_x E_c[P_c(x)] · E_c[\log P_c(x)]

    The pairs c = c′, which are zero, are in the mean; multiply by T/(T − 1) to leave them out. The paper drew
    pairs instead: ``pairs=N`` draws N of the T² with replacement and gives the standard error.

    Args:
        log_probs: (T, M) array or tensor, natural logarithms; or a function that returns an iterable of (n, M)
            blocks, called once a pass.
        pairs: ``"all"`` or a number of at least 2.
        seed: of the draw.
        shape: (T, M) of the blocks, where it is known: it saves drawn pairs a pass.

    Raises:
        ConfigurationError: for another number of pairs.
        MatrixError: for a matrix that is empty, not finite, or not of log-probabilities.

    Example:
        >>> import numpy as np
        >>> p = np.array([[0.5, 0.5], [0.9, 0.1]])
        >>> one, other = (p[0] * np.log(p[0] / p[1])).sum(), (p[1] * np.log(p[1] / p[0])).sum()
        >>> bool(abs(pairwise_kld(np.log(p)).kld - (one + other) / 4) < 1e-12)
        True
    """
    blocks: Blocks = log_probs if callable(log_probs) else lambda: _rows(log_probs)
    if pairs == "all":
        return _exact(blocks)
    if not isinstance(pairs, int) or pairs < 2:
        raise ConfigurationError(f"pairs must be 'all' or a number of at least 2, not {pairs!r}")
    return _sampled(blocks, shape or _shape(blocks), pairs, seed)


def _exact(blocks: Blocks) -> PairwiseKLD:
    contexts = 0
    negative_entropy = 0.0
    probability: NDArray[np.float64] | float = 0.0
    log_probability: NDArray[np.float64] | float = 0.0
    for block in checked(blocks()):
        log_p = block.astype(np.float64)
        p = _probabilities(log_p, contexts)
        negative_entropy += float(np.einsum("ij,ij->", p, log_p))
        probability = probability + p.sum(0)
        log_probability = log_probability + log_p.sum(0)
        contexts += len(block)
    assert isinstance(probability, np.ndarray)
    assert isinstance(log_probability, np.ndarray)
    cross = float((probability / contexts) @ (log_probability / contexts))
    # Never negative: of equal rows roundoff is left.
    exact = max(negative_entropy / contexts - cross, 0.0)
    return PairwiseKLD(exact, "all", None, contexts, probability.size)


def _probabilities(log_p: NDArray[np.float64], start: int) -> NDArray[np.float64]:
    """Return P of rows numbered from ``start``, each of which sums to about one."""
    with np.errstate(over="ignore"):
        p = np.exp(log_p)
        sums = p.sum(1)
    wrong = np.flatnonzero(~((sums < math.exp(LARGEST_LOG_SUM)) & (sums > math.exp(-LARGEST_LOG_SUM))))
    if wrong.size:
        raise MatrixError(
            f"row {start + wrong[0]} is not a row of log-probabilities: its probabilities sum to {sums[wrong[0]]:.3g}; "
            "take the logarithm of probabilities, or the log-softmax of logits"
        )
    return p


ROWS_IN_MEMORY = 1 << 27
"""Entries (1 GiB of float64) that one pass over the matrix may collect for drawn pairs."""


def _sampled(blocks: Blocks, shape: tuple[int, int], pairs: int, seed: int) -> PairwiseKLD:
    contexts, vocab = shape
    drawn = np.random.default_rng(seed).integers(contexts, size=(pairs, 2))
    at_once = max(1, ROWS_IN_MEMORY // (2 * vocab))
    values = np.empty(pairs)
    for start in range(0, pairs, at_once):
        some = drawn[start : start + at_once]
        needed, places = np.unique(some, return_inverse=True)
        rows = _collect(blocks, needed, vocab)
        for index, (c, other) in enumerate(places.reshape(some.shape)):
            p = _probabilities(rows[c : c + 1], int(some[index, 0]))[0]
            values[start + index] = float(p @ (rows[c] - rows[other]))
    error = float(values.std(ddof=1)) / math.sqrt(pairs)
    return PairwiseKLD(float(values.mean()), pairs, error, contexts, vocab)


def _shape(blocks: Blocks) -> tuple[int, int]:
    contexts, vocab = 0, 0
    for block in blocks():
        contexts, vocab = contexts + len(block), int(block.shape[1])
    if contexts == 0:
        raise MatrixError("the matrix is empty: there are no rows to measure")
    return contexts, vocab


def _collect(blocks: Blocks, needed: NDArray[np.int64], vocab: int) -> NDArray[np.float64]:
    """Return the rows numbered ``needed`` (ascending) of a streamed matrix."""
    rows = np.empty((needed.size, vocab))
    start = 0
    for block in checked(blocks()):
        first, last = np.searchsorted(needed, [start, start + len(block)])
        rows[first:last] = block[needed[first:last] - start]
        start += len(block)
    return rows


def _rows(matrix: Any) -> Iterable[Any]:
    rows_at_once = max(1, (16 << 20) // (8 * max(1, matrix.shape[-1])))
    for start in range(0, len(matrix), rows_at_once):
        yield matrix[start : start + rows_at_once]
