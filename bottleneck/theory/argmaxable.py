"""Which tokens no context vector makes the likeliest (Demeter et al. 2020; Grivas et al. 2022)."""

from __future__ import annotations

import math
import multiprocessing
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigurationError, MatrixError
from ..progress import SILENT, Progress
from ..result import Result
from ..spectrum.blocks import as_array
from .argmax_program import Certificate, Decision, decide
from .argmax_search import Layer, Witnesses, search
from .inputs import real_matrix

AT_ONCE = 8
"""Tokens that a process decides before it reports."""
_layer: Layer | None = None


@dataclass(frozen=True, eq=False)
class ArgmaxReport(Result):
    """For every token a context vector that makes it the argmax, a certificate that none does, or neither."""

    vocab: int
    """M."""
    dimension: int
    """d."""
    unargmaxable: NDArray[np.int64]
    """Ids of the tokens that are the argmax of no h: each has one of `certificates`."""
    unknown: NDArray[np.int64]
    """Ids that a stopped program left open, or whose margin is nothing but roundoff."""
    contexts: NDArray[np.float64]
    """(M, d): h that makes each other token the argmax; NaN in the rows of those above."""
    margins: NDArray[np.float64]
    """(M,): by how much its logit then exceeds the next one, more than roundoff can explain; NaN likewise."""
    certificates: Mapping[int, Certificate]
    """Token → why it is the argmax of no h."""
    programs: int
    """Tokens for which a linear program was solved: cheaper means decided the rest."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, without context vectors and weights."""
        residuals = [each.residual for each in self.certificates.values()]
        return {
            "vocab": self.vocab,
            "embedding_size": self.dimension,
            "argmaxable": self.vocab - len(self.unargmaxable) - len(self.unknown),
            "unargmaxable": self.unargmaxable.tolist(),
            "unknown": self.unknown.tolist(),
            "least_margin": float(np.nanmin(self.margins)) if np.isfinite(self.margins).any() else None,
            "largest_residual": max(residuals, default=None),
            "programs": self.programs,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the result as pairs of label and text, for people."""
        argmaxable = self.vocab - len(self.unargmaxable) - len(self.unknown)
        rows = [
            ("never the argmax", f"{len(self.unargmaxable):,} of {self.vocab:,} tokens, for no context vector"),
            ("the argmax of one", f"{argmaxable:,}; unknown {len(self.unknown):,}"),
            ("computed", f"d = {self.dimension:,}; {self.programs:,} tokens took a linear program"),
        ]
        if len(self.unargmaxable):
            shown = ", ".join(map(str, self.unargmaxable[:20]))
            rows.append(("ids", f"{shown}{', …' if len(self.unargmaxable) > 20 else ''}"))
        return rows


def unargmaxable(
    W: Any,
    b: Any = None,
    *,
    seconds: float | None = 60.0,
    workers: int = 1,
    seed: int = 0,
    progress: Progress = SILENT,
) -> ArgmaxReport:
    r"""Decide for each token whether some h makes its logit w_i·h + b_i strictly larger than all others.

    It does unless the token lies in the convex hull of the others, biases counted: :math:`λ ≥ 0, \sum_j λ_j = 1`,
    :math:`\sum_j λ_j w_j = w_i, \sum_j λ_j b_j ≥ b_i`. Directions and perceptron steps decide most tokens; a linear
    program (HiGHS) each of the rest. What a witness claims exceeds all roundoff of the logits in float64; what
    a certificate leaves open, its residual, lies below that roundoff. Of equal rows none is ever strictly largest.

    h is any vector: a model whose context vectors fill only a part of R^d (those behind a tanh, or a LayerNorm) makes
    no more tokens an argmax than this, and perhaps fewer. An increasing function on the logits changes nothing.

    Args:
        W: (M, d) output embeddings.
        b: (M,) output bias; −∞ masks a token, which then is the argmax of no h.
        seconds: limit for each token's program; one that it stops leaves the token unknown.
        workers: processes; more than one need a main module that can be imported (``if __name__ == "__main__"``).
        seed: of the random directions.
        progress: where to report.

    Raises:
        MatrixError: for shapes or numbers that are not what they should be.
        ConfigurationError: for no worker, or a limit that is not positive.

    References:
        Demeter, Kimmel and Downey 2020, *Stolen Probability* (ACL). Grivas, Bogoychev and Lopez 2022, *Low-Rank
        Softmax Can Have Unargmaxable Classes in Theory but Rarely in Practice* (ACL).

    Example:
        >>> report = unargmaxable([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
        >>> report.unargmaxable
        array([3])
        >>> float(report.certificates[3].weights @ [1.0, -1.0, -1.0])  # the first coordinates of tokens 0, 1, 2
        0.0
    """
    if workers < 1 or not (seconds is None or seconds > 0):
        raise ConfigurationError(f"give at least 1 worker and a limit above 0 seconds, not {workers} and {seconds}")
    W = real_matrix(W, "W")
    # By a power of two, which rounds nothing, to where squares stay within float64's range.
    exponent = int(np.frexp(abs(W).max())[1])
    layer = Layer(np.ldexp(W, -exponent), _bias(b, len(W)))
    witnesses = Witnesses(layer)
    rivals = search(witnesses, seed=seed)
    nothing = np.zeros(0, dtype=np.int64)
    masked = np.setdiff1d(np.arange(layer.vocab), layer.allowed)
    certificates = {int(token): Certificate(nothing, np.zeros(0), 0.0, 0.0) for token in masked}
    with progress.bar("solving linear programs", len(rivals), "tokens") as bar:
        for token, found in _decisions(layer, rivals, seconds, workers):
            if isinstance(found, Certificate):
                certificates[token] = replace(found, residual=math.ldexp(found.residual, exponent))
            elif found is not None:
                witnesses.offer(found[None])
            bar.advance(1)
    # A context vector that was found for one token may have proved another that its own program left open.
    missing = witnesses.missing
    return ArgmaxReport(
        vocab=layer.vocab,
        dimension=layer.dimension,
        unargmaxable=np.array(sorted(certificates), dtype=np.int64),
        unknown=missing[~np.isin(missing, list(certificates))],
        contexts=np.ldexp(witnesses.contexts, -exponent),
        margins=witnesses.margins,
        certificates=certificates,
        programs=len(rivals),
    )


def _bias(b: Any, vocab: int) -> NDArray[np.float64]:
    bias = np.zeros(vocab) if b is None else as_array(b).astype(np.float64)
    if bias.shape != (vocab,):
        raise MatrixError(f"the bias must have shape ({vocab},), not {bias.shape}")
    if not (bias < np.inf).all():
        raise MatrixError(f"the bias holds {bias[~(bias < np.inf)][0]}: give finite numbers, or −∞ for a masked token")
    return bias


def _decisions(
    layer: Layer, rivals: Mapping[int, NDArray[np.int64]], seconds: float | None, workers: int
) -> Iterator[tuple[int, Decision]]:
    """Yield each token with what was found of it, in the order in which they are done."""
    workers = min(workers, -(-len(rivals) // AT_ONCE))
    if workers <= 1:
        for token, seen in rivals.items():
            yield token, decide(layer, token, seen, seconds=seconds)
        return
    items = list(rivals.items())
    tasks = [dict(items[start : start + AT_ONCE]) for start in range(0, len(items), AT_ONCE)]
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(layer,))
    try:
        for done in as_completed([pool.submit(_decide, task, seconds) for task in tasks]):
            yield from done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _start(layer: Layer) -> None:
    global _layer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the process that started this one
    _layer = layer


def _decide(task: Mapping[int, NDArray[np.int64]], seconds: float | None) -> list[tuple[int, Decision]]:
    assert _layer is not None
    return [(token, decide(_layer, token, seen, seconds=seconds)) for token, seen in task.items()]
