"""How far apart the next-token distributions of different contexts are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._version import __version__
from .errors import ConfigurationError, MatrixError
from .result import Result
from .spectrum import Inspection, Precision, precision
from .spectrum.blocks import checked
from .spectrum.inspection import ROW_SUM_TOLERANCE

Blocks = Callable[[], Iterable[Any]]
Matrix = NDArray[np.float64]

CACHED = 1 << 17
"""Entries (1 MiB of float64) that are worked on at once: they and a few results stay in a core's cache."""
KINDS = ("log-probs", "logits")
LARGEST_LOG_SUM = 0.5
"""Nats by which log Σ P of a row may be off at any precision: rounding alone stays below it, while probabilities and
logits taken for their logarithms exceed it."""


@dataclass(frozen=True)
class PairwiseKLD(Result):
    """An expected pairwise Kullback-Leibler divergence; ``float(estimate)`` is its value."""

    kld: float
    """Mean of KL(P(·|c) ‖ P(·|c′)) over pairs of contexts, in nats."""
    pairs: str | int
    """``"all"`` for all T² ordered pairs, c = c′ included, or the number of pairs drawn from them."""
    standard_error: float | None
    """Standard error of the mean for drawn pairs; ``None`` when all pairs are used."""
    contexts: int
    """T."""
    vocab: int
    """M."""
    roundoff: float
    """Nats by which ``kld`` may be off because the entries were rounded, to first order."""
    largest_log_sum: float | None
    """The largest |log Σ P| of a row that was read, before it was normalized, in nats; ``None`` for logits."""
    eps: Precision
    """The precision of the entries, which ``roundoff`` follows from."""
    source: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What was measured: path, kind, head, corpus, split."""
    seconds: float = field(default=0.0, compare=False)
    """Wall-clock time of the measurement."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        first, last = {"source": dict(self.source)}, {"seconds": self.seconds, "version": __version__}
        names = ("contexts", "vocab", "pairs", "kld", "standard_error", "roundoff", "largest_log_sum")
        return first | {name: getattr(self, name) for name in names} | {"eps": self.eps.to_dict()} | last

    def rows(self) -> list[tuple[str, str]]:
        """Return the divergence as label and text, for people."""
        named = [("source", str(self.source["path"]))] if self.source else []
        label, text = "expected pairwise KL divergence", str(self).removeprefix("expected pairwise KL divergence ")
        return [*named, ("matrix", f"{self.contexts:,} contexts × {self.vocab:,} tokens"), (label, text)]

    def __float__(self) -> float:
        """Return the divergence in nats."""
        return self.kld

    def __str__(self) -> str:
        """Return the divergence with its errors, as one line for people."""
        how, error = "all pairs", ""
        if self.standard_error is not None:
            how, error = f"{self.pairs:,} drawn pairs", f" ± {self.standard_error:.4f} (standard error)"
        coarse = self.eps.rounding and (self.eps.rounding.dtype or "a coarser type")
        entries = coarse or self.eps.dtype or f"eps {self.eps.value:g}"
        line = f"expected pairwise KL divergence {self.kld:.4f}{error} ± {self.roundoff:.1g} (roundoff of {entries})"
        line += f" nats ({how})"
        if self.largest_log_sum is not None and self.largest_log_sum > self.roundoff:
            line += f"; the rows were normalized, the sum of one was off by {self.largest_log_sum:.2g} nats"
        return line


def pairwise_kld(
    log_probs: Any,
    *,
    pairs: str | int = "all",
    seed: int = 0,
    shape: tuple[int, int] | None = None,
    kind: str = "log-probs",
    eps: str | float | Precision | None = None,
) -> PairwiseKLD:
    r"""Return the expected pairwise KL divergence of the rows of a log-probability matrix (MoS paper, appendix C.1).

    Each row a is normalized in float64, l = a − log Σ exp a and p = exp l. Over all T² ordered pairs one pass is
    enough and no pair is formed:

    .. math:: E_{c,c'}[KL(P_c ‖ P_{c'})] = E_c \sum_x P_c(x) \log P_c(x) - \sum_x E_c[P_c(x)] · E_c[\log P_c(x)]

    The pairs c = c′, which are zero, are in the mean; multiply by T/(T − 1) to leave them out. The paper drew
    pairs instead: ``pairs=N`` draws N of the T² with replacement and gives the standard error.

    Roundoff: rounding moves an entry by |δa| ≤ ½ eps |a|. Of D = KL(p ‖ p′), normalization included, the
    derivatives are ∂D/∂a = p (l − l′ − D) and ∂D/∂a′ = p′ − p. So to first order

    .. math:: |δD| ≤ ½ eps \Big(\sum_x p |l - l' - D| |a| + \sum_x (p + p') |a'|\Big)

    p + p′ stands for |p − p′|, so that the bound holds where rows are equal and the second order is all there is. Over
    all pairs l′ and D become their means, and the Cauchy-Schwarz inequality bounds the first sum by
    :math:`\sqrt{E_c \sum p (l - E[l])^2 - D^2} \sqrt{E_c \sum p a^2}`. Where the entries show a coarser rounding in
    steps δ (`Rounding`), δ stands beside eps |a|. The sums of n terms in float64 add at most n · 2⁻⁵³ times the
    magnitudes that are subtracted.

    Args:
        log_probs: (T, M) array or tensor, natural logarithms; or a function that returns an iterable of (n, M)
            blocks, called once a pass.
        pairs: ``"all"`` or a number of at least 2.
        seed: of the draw.
        shape: (T, M) of the blocks, where it is known: it saves drawn pairs a pass.
        kind: ``"log-probs"``, whose rows must sum to one within what rounding explains, or ``"logits"``.
        eps: precision of the entries, a type's name or a number; by default what the numbers show.

    Raises:
        ConfigurationError: for another number of pairs, kind or precision.
        MatrixError: for a matrix that is empty, not finite, or not of log-probabilities.

    Example:
        >>> import numpy as np
        >>> p = np.array([[0.5, 0.5], [0.9, 0.1]])
        >>> one, other = (p[0] * np.log(p[0] / p[1])).sum(), (p[1] * np.log(p[1] / p[0])).sum()
        >>> bool(abs(pairwise_kld(np.log(p)).kld - (one + other) / 4) < 1e-12)
        True
    """
    if kind not in KINDS:
        raise ConfigurationError(f"unknown kind {kind!r}; the rows are one of {', '.join(KINDS)}")
    blocks: Blocks = log_probs if callable(log_probs) else lambda: _slices(log_probs)
    rows = _Rows(blocks, kind, eps if eps is None or isinstance(eps, Precision) else precision(eps))
    if pairs == "all":
        return _exact(rows)
    if not isinstance(pairs, int) or pairs < 2:
        raise ConfigurationError(f"pairs must be 'all' or a number of at least 2, not {pairs!r}")
    return _sampled(rows, shape or _shape(blocks), pairs, seed)


class _Rows:
    """Blocks of rows, and what was seen of them while they were read and normalized."""

    def __init__(self, blocks: Blocks, kind: str, eps: Precision | None) -> None:
        self._blocks, self._kind, self._eps = blocks, kind, eps
        self._inspection = Inspection(None, language=True)
        self._largest, self._row = 0.0, 0

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the blocks, found to be finite."""
        for block in checked(self._inspection.noting(self._blocks())):
            if self._eps is None:
                self._inspection.watch(block)
            yield block

    def pieces(self) -> Iterator[Matrix]:
        """Yield the rows in float64, about `CACHED` entries at once."""
        for block in self.blocks():
            rows = max(1, CACHED // block.shape[1])
            for start in range(0, len(block), rows):
                yield block[start : start + rows].astype(np.float64)

    def normalized(self, given: Matrix, numbers: NDArray[np.int64]) -> tuple[Matrix, Matrix]:
        """Return P and log P of the rows of these numbers."""
        largest = given.max(1, keepdims=True)
        log_p = given - largest
        p = np.exp(log_p)
        sums = p.sum(1, keepdims=True)
        p /= sums
        log_p -= np.log(sums)
        if self._kind == "log-probs":
            off = np.abs(largest + np.log(sums))
            if off.max() > self._largest:
                self._largest, self._row = float(off.max()), int(numbers[off.argmax()])
                self._check(LARGEST_LOG_SUM)
        return p, log_p

    def eps(self, vocab: int) -> Precision:
        """Return the precision of the rows; `MatrixError` where it does not explain how far off their sums are."""
        found = self._eps or self._inspection.precision()
        self._check(min(LARGEST_LOG_SUM, ROW_SUM_TOLERANCE * found.value * max(1.0, math.log(vocab))))
        return found

    def largest_log_sum(self) -> float | None:
        """Return how far off the sum of any row was, in nats."""
        return self._largest if self._kind == "log-probs" else None

    def _check(self, allowed: float) -> None:
        if self._largest > allowed:
            raise MatrixError(
                f"row {self._row} is not a row of log-probabilities: the logarithm of its probabilities' sum is off by "
                f"{self._largest:.3g}, and {allowed:.1e} is allowed at its precision; take the logarithm of "
                "probabilities, or normalize logits (--kind logits)"
            )


def _exact(rows: _Rows) -> PairwiseKLD:
    contexts = 0
    sums: Matrix | float = 0.0
    for given in rows.pieces():
        p, log_p = rows.normalized(given, contexts + np.arange(len(given)))
        size = np.abs(given)
        terms = (p, log_p, size, p * log_p, p * log_p**2, p * size, p * size**2)
        sums = sums + np.stack([term.sum(0) for term in terms])
        contexts += len(given)
    assert isinstance(sums, np.ndarray)
    p, log_p, size, p_log_p, p_log_p_squared, p_size, p_size_squared = sums / contexts
    eps = rows.eps(p.size)
    negative_entropy, cross = float(p_log_p.sum()), float(p @ log_p)
    # Never negative: of equal rows roundoff is left.
    exact = max(negative_entropy - cross, 0.0)
    variance = float((p_log_p_squared - 2 * p_log_p * log_p + p * log_p**2).sum()) - exact**2
    rounding = math.sqrt(max(variance, 0.0) * float(p_size_squared.sum())) + float(p_size.sum() + p @ size)
    summing = -(contexts + p.size) * (negative_entropy + cross)
    coarse = _step(eps) / 2 * (math.sqrt(max(variance, 0.0)) + 2)
    roundoff = eps.value / 2 * rounding + coarse + 2.0**-53 * summing
    return PairwiseKLD(exact, "all", None, contexts, p.size, roundoff, rows.largest_log_sum(), eps)


ROWS_IN_MEMORY = 1 << 27
"""Entries (1 GiB of float64) that one pass over the matrix may collect for drawn pairs."""


def _sampled(rows: _Rows, shape: tuple[int, int], pairs: int, seed: int) -> PairwiseKLD:
    contexts, vocab = shape
    drawn = np.random.default_rng(seed).integers(contexts, size=(pairs, 2))
    at_once = max(1, ROWS_IN_MEMORY // (2 * vocab))
    values, entries, spreads, sums = np.empty((4, pairs))
    for start in range(0, pairs, at_once):
        some = drawn[start : start + at_once]
        needed, places = np.unique(some, return_inverse=True)
        given = _collect(rows, needed, vocab)
        for index, pair in enumerate(places.reshape(some.shape), start):
            (p, q), (log_p, log_q) = rows.normalized(given[pair], needed[pair])
            one, other = np.abs(given[pair])
            values[index] = float(p @ (log_p - log_q))
            apart = p * np.abs(log_p - log_q - values[index])
            entries[index] = float(apart @ one + (p + q) @ other)
            spreads[index] = float(apart.sum()) + 2
            sums[index] = -float(p @ (log_p + log_q))
    eps = rows.eps(vocab)
    error = float(values.std(ddof=1)) / math.sqrt(pairs)
    rounding = eps.value / 2 * entries.mean() + _step(eps) / 2 * spreads.mean()
    roundoff = float(rounding + vocab * 2.0**-53 * sums.mean())
    return PairwiseKLD(float(values.mean()), pairs, error, contexts, vocab, roundoff, rows.largest_log_sum(), eps)


def _step(eps: Precision) -> float:
    """Return the step of a coarser rounding, 0 where there is none or it cannot be told."""
    rounding = eps.rounding
    counted = rounding is None or rounding.dtype == eps.dtype or math.isinf(rounding.step)
    return 0.0 if rounding is None or counted else rounding.step


def _shape(blocks: Blocks) -> tuple[int, int]:
    contexts, vocab = 0, 0
    for block in blocks():
        contexts, vocab = contexts + len(block), int(block.shape[1])
    if contexts == 0:
        raise MatrixError("the matrix is empty: there are no rows to measure")
    return contexts, vocab


def _collect(rows: _Rows, needed: NDArray[np.int64], vocab: int) -> Matrix:
    """Return the rows numbered ``needed`` (ascending) of a streamed matrix."""
    given = np.empty((needed.size, vocab))
    start = 0
    for block in rows.blocks():
        first, last = np.searchsorted(needed, [start, start + len(block)])
        given[first:last] = block[needed[first:last] - start]
        start += len(block)
    return given


def _slices(matrix: Any) -> Iterable[Any]:
    rows_at_once = max(1, (16 << 20) // (8 * max(1, matrix.shape[-1])))
    for start in range(0, len(matrix), rows_at_once):
        yield matrix[start : start + rows_at_once]
