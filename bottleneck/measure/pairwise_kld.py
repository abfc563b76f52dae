"""The expected pairwise Kullback-Leibler (KL) divergence of next-token distributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from ..core.checks import check_pairs, check_seed, typed
from ..core.options import KldOptions
from ..core.progress import reporting
from ..errors import ConfigurationError, MatrixError, Parameter
from ..sources import Source
from ..sources.measurement import measurement
from ..spectrum import Inspection, Precision, precision
from ..spectrum.blocks import as_array, check_dense, check_shape, checked
from ..spectrum.inspection import allowed_log_sum
from ..spectrum.replaced import MASK
from .divergence_report import Histogram, PairwiseKLD
from .divergence_report import looks_rounded as looks_rounded

Blocks = Callable[[], Iterable[Any]]
Matrix = NDArray[np.float64]

CACHED = 1 << 17
"""Entries (1 MiB of float64) processed at once: they and a few results fit into a core's cache."""
KINDS = ("log-probs", "logits")
ROWS_IN_MEMORY = 1 << 27
"""Most entries (1 GiB of float64) that one pass over the matrix collects for drawn pairs."""
BINS = 40
"""Number of bins of the histogram of drawn pairs."""
LARGEST_LOG_SUM = 0.5
"""Largest |log Σ P| of a row, in nats, that is accepted at any precision. Rounding alone stays below it; probabilities
or logits given in place of log-probabilities exceed it."""
NEARLY = 0.5
"""A token counts as masked everywhere if some contexts mask it by `MASK` and all others by this part of it: the
distance depends on each context's likeliest token."""


@typed
def pairwise_kld(
    log_probs: Any,
    *,
    pairs: Literal["all"] | int = "all",
    seed: int = 0,
    shape: tuple[int, int] | None = None,
    kind: str = "log-probs",
    eps: str | float | Precision | None = None,
) -> PairwiseKLD:
    r"""Return the expected pairwise KL divergence of a log-probability matrix's rows (Yang et al. 2018, appendix C.1).

    Each row a is normalized in float64, l = a − log Σ exp a and p = exp l. One pass gives the mean over all T² ordered
    pairs, without forming a pair:

    .. math:: E_{c,c'}[KL(P_c ‖ P_{c'})] = E_c \sum_x P_c(x) \log P_c(x) - \sum_x E_c[P_c(x)] · E_c[\log P_c(x)]

    The mean includes the pairs c = c′, which are zero; multiply by T/(T − 1) to leave them out. Yang et al. 2018 drew
    pairs: ``pairs=N`` draws N of the T² with replacement and gives the standard error.

    Roundoff: rounding changes an entry by |δa| ≤ ½ eps |a|. The derivatives of D = KL(p ‖ p′), normalization included,
    are ∂D/∂a = p (l − l′ − D) and ∂D/∂a′ = p′ − p. So to first order

    .. math:: |δD| ≤ ½ eps \Big(\sum_x p |l - l' - D| |a| + \sum_x (p + p') |a'|\Big)

    p + p′ replaces |p − p′|, so that the bound also holds for equal rows, where the first-order error is zero. Over all
    pairs l′ and D become their means, and the Cauchy-Schwarz inequality bounds the first sum by
    :math:`\sqrt{E_c \sum p (l - E[l])^2 - D^2} \sqrt{E_c \sum p a^2}`. The sums of n terms in float64 add at most
    n · 2⁻⁵³ times the magnitudes that are subtracted. A coarser rounding that the entries show is named beside the
    divergence, which is that of the numbers as they are.

    Args:
        log_probs: (T, M) array or tensor, natural logarithms; or a function that returns an iterable of (n, M)
            blocks, called once for each pass.
        pairs: ``"all"`` or a number of at least 2.
        seed: seed of the drawn pairs.
        shape: (T, M) of the blocks; if it is given, drawn pairs take one pass less.
        kind: ``"log-probs"``, whose probabilities must sum to one up to rounding, or ``"logits"``.
        eps: precision of the entries, a type's name or a number; by default it is inferred from the entries.

    Raises:
        ConfigurationError: for another number of pairs, kind or precision.
        MatrixError: for a matrix that is empty, not finite, or does not hold log-probabilities.

    Example:
        >>> import numpy as np
        >>> p = np.array([[0.5, 0.5], [0.9, 0.1]])
        >>> one, other = (p[0] * np.log(p[0] / p[1])).sum(), (p[1] * np.log(p[1] / p[0])).sum()
        >>> bool(abs(pairwise_kld(np.log(p)).kld - (one + other) / 4) < 1e-12)
        True
    """
    if kind not in KINDS:
        raise ConfigurationError(f"unknown kind {kind!r}; the rows are one of {', '.join(KINDS)}")
    check_pairs(pairs)
    check_seed(seed)
    blocks: Blocks = log_probs if callable(log_probs) else lambda: _slices(log_probs)
    rows = _NormalizedRows(blocks, kind, eps if eps is None or isinstance(eps, Precision) else precision(eps))
    return rows.over_all_pairs() if pairs == "all" else rows.over_drawn_pairs(shape or _shape(blocks), pairs, seed)


class _NormalizedRows:
    """Blocks of rows, with the precision and the largest |log Σ P| observed while they are read and normalized."""

    def __init__(self, blocks: Blocks, kind: str, eps: Precision | None) -> None:
        self._blocks, self._kind, self._eps = blocks, kind, eps
        self._inspection = Inspection(language=True)
        self._largest, self._row = 0.0, 0

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the blocks; raise `MatrixError` for an entry that is not finite."""
        for block in checked(self._inspection.noting(self._blocks())):
            if self._eps is None:
                self._inspection.watch(block)
            yield block

    def pieces(self) -> Iterator[Matrix]:
        """Yield the rows in float64, about `CACHED` entries at a time."""
        for block in self.blocks():
            rows = max(1, CACHED // block.shape[1])
            for start in range(0, len(block), rows):
                yield block[start : start + rows].astype(np.float64)

    def normalized(self, entries: Matrix, numbers: NDArray[np.int64]) -> tuple[Matrix, Matrix]:
        """Return P and log P of rows, whose indices in the matrix are ``numbers``."""
        largest = entries.max(1, keepdims=True)
        log_p = entries - largest
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

    def sizes(self, entries: Matrix) -> Matrix:
        """Return the sizes of the entries when they were rounded: normalized logits may have been larger."""
        least = self._eps.size if self._eps is not None and self._kind == "log-probs" else None
        return np.maximum(np.abs(entries), least or 0.0)

    def _check(self, allowed: float) -> None:
        if self._largest > allowed:
            which = "any" if allowed == LARGEST_LOG_SUM else "its"
            raise MatrixError(
                f"row {self._row} is not a row of log-probabilities: the logarithm of its probabilities' sum is off "
                f"by {self._largest:.3g}, and {allowed:.1e} is allowed at {which} precision; take the logarithm of "
                "probabilities, or normalize logits (",
                Parameter("kind", "logits"),
                ")",
            )

    def over_all_pairs(self) -> PairwiseKLD:
        """Return the mean over all pairs."""
        contexts = 0
        sums: Matrix | float = 0.0
        for entries in self.pieces():
            p, log_p = self.normalized(entries, contexts + np.arange(len(entries)))
            size = self.sizes(entries)
            terms = (p, log_p, size, p * log_p, p * log_p**2, p * size, p * size**2)
            sums = sums + np.stack([term.sum(0) for term in terms])
            contexts += len(entries)
        assert isinstance(sums, np.ndarray)
        p, log_p, size, p_log_p, p_log_p_squared, p_size, p_size_squared = sums / contexts
        negative_entropy, cross = float(p_log_p.sum()), float(p @ log_p)
        # Roundoff may make the divergence of equal rows negative.
        kld = max(negative_entropy - cross, 0.0)
        deviation = math.sqrt(max(float((p_log_p_squared - 2 * p_log_p * log_p + p * log_p**2).sum()) - kld**2, 0.0))
        moved = deviation * math.sqrt(float(p_size_squared.sum())) + float(p_size.sum() + p @ size)
        summing = -(contexts + p.size) * (negative_entropy + cross)
        return self._divergence(kld, (contexts, p.size), moved, summing)

    def over_drawn_pairs(self, shape: tuple[int, int], pairs: int, seed: int) -> PairwiseKLD:
        """Return the mean over drawn pairs of rows of a (T, M) matrix."""
        contexts, vocab = shape
        drawn = np.random.default_rng(seed).integers(contexts, size=(pairs, 2))
        at_once = max(1, ROWS_IN_MEMORY // (2 * vocab))
        values, moved, summing = np.empty((3, pairs))
        for start in range(0, pairs, at_once):
            some = drawn[start : start + at_once]
            needed, places = np.unique(some, return_inverse=True)
            collected = self._collect(needed, vocab)
            for index, pair in enumerate(places.reshape(some.shape), start):
                (p, q), (log_p, log_q) = self.normalized(collected[pair], needed[pair])
                one, other = self.sizes(collected[pair])
                values[index] = float(p @ (log_p - log_q))
                apart = p * np.abs(log_p - log_q - values[index])
                moved[index] = float(apart @ one + (p + q) @ other)
                summing[index] = -vocab * float(p @ (log_p + log_q))
        counts, edges = np.histogram(values, bins=BINS, range=(min(0.0, values.min()), values.max()))
        return self._divergence(
            float(values.mean()), shape, float(moved.mean()), float(summing.mean()), pairs=pairs,
            standard_error=float(values.std(ddof=1)) / math.sqrt(pairs),
            histogram=Histogram(tuple(edges.tolist()), tuple(counts.tolist())),
        )  # fmt: skip

    def _divergence(
        self, kld: float, shape: tuple[int, int], moved: float, summing: float, **drawn: Any
    ) -> PairwiseKLD:
        """Return a divergence with its roundoff; refuse rows whose |log Σ P| their precision does not explain.

        It moves by ``moved`` with ε/2 of the entries' sizes, and by ``summing`` with 2⁻⁵³ of each sum.
        """
        eps = self._eps or self._inspection.precision
        self._check(min(LARGEST_LOG_SUM, allowed_log_sum(eps, shape[1])))
        return PairwiseKLD(
            kld=kld,
            contexts=shape[0],
            vocab=shape[1],
            roundoff=eps.value / 2 * moved + 2.0**-53 * summing,
            largest_log_sum=self._largest if self._kind == "log-probs" else None,
            eps=eps,
            doubt=self._inspection.replaced() if self._eps is None else "",
            **drawn,
        )

    def _collect(self, needed: NDArray[np.int64], vocab: int) -> Matrix:
        """Return the rows whose indices are ``needed``, in ascending order."""
        collected = np.empty((needed.size, vocab))
        start = 0
        for block in self.blocks():
            first, last = np.searchsorted(needed, [start, start + len(block)])
            collected[first:last] = block[needed[first:last] - start]
            start += len(block)
        return collected


def _shape(blocks: Blocks) -> tuple[int, int]:
    contexts, vocab = 0, 0
    for block in blocks():
        contexts, vocab = contexts + len(block), int(block.shape[1])
    if contexts == 0:
        raise MatrixError("the matrix is empty: give at least one row")
    return contexts, vocab


def _slices(matrix: Any) -> Iterable[Any]:
    check_dense(matrix, "the matrix")
    matrix = matrix if hasattr(matrix, "shape") else as_array(matrix)
    check_shape(matrix.shape, "the matrix")
    rows_at_once = max(1, (16 << 20) // (8 * max(1, matrix.shape[-1])))
    for start in range(0, len(matrix), rows_at_once):
        yield matrix[start : start + rows_at_once]


@measurement(KldOptions)
def kld(source: Source, **options: Unpack[KldOptions]) -> PairwiseKLD:
    """Measure the expected pairwise KL divergence of a source's rows, in nats (Yang et al. 2018, appendix C.1).

    Args:
        source: as for `rank`.
        options: how the source is opened, where to report, and whether all T² ordered pairs are used, in one pass, or
            at least 2 that are drawn, see `KldOptions`.

    Raises:
        BottleneckError: for a source that cannot be read, rows that are not finite or not log-probabilities, or tokens
            that only some contexts mask by a large negative number.
    """
    source.check_distributions()
    if source.entries_shape[0] < 2:
        raise MatrixError(f"{source.name} has one context, and a divergence is of pairs: measure two contexts or more")
    progress = reporting(options.get("progress", False))

    def blocks() -> Iterator[NDArray[Any]]:
        masked, nearly = np.zeros((2, source.entries_shape[1]), dtype=np.int64)
        with progress.bar("computing pairwise KL", source.entries_shape[0], "contexts") as bar:
            for rows in source.entries():
                if rows.min() < rows.max() + MASK:
                    below = rows - rows.max(1, keepdims=True)
                    masked += (below < MASK).sum(0)
                    nearly += (below < NEARLY * MASK).sum(0)
                    # A token that all contexts mask has probability 0 and no part in any divergence.
                    rows = np.where(rows == -np.inf, rows.max(1, keepdims=True) + 2 * MASK, rows)
                yield rows
                bar.advance(len(rows))
        some = np.flatnonzero((masked > 0) & (nearly < source.entries_shape[0]))
        if some.size:
            raise MatrixError(
                f"{masked[some[0]]:,} of {source.entries_shape[0]:,} contexts mask token {some[0]:,} by {-MASK:,.0f} "
                "nats or more: the divergence from them is infinite; leave out the columns of such tokens, or give the "
                "log-probabilities before the likeliest tokens of each context were chosen (top-k, top-p)"
            )

    found = pairwise_kld(
        blocks,
        pairs=options["pairs"],
        seed=options["seed"],
        shape=source.entries_shape,
        kind="logits" if source.description["kind"] in ("logits", "extended") else "log-probs",
        eps=source.rows_precision,
    )
    return replace(found, source=source.description, doubt=source.entry_warning())
