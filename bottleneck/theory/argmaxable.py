"""Tokens that no context vector makes the most likely (Demeter et al. 2020; Grivas et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ..core.checks import check_above_zero, check_positive, check_seed, typed
from ..core.progress import SILENT, Progress
from ..core.workers import run_in_workers
from ..errors import Function, OutputError, Parameter, Sentence
from ..results.base import UNSAVED, Drawings, Result
from ..results.quantity import ANSWER, TABLE, Quantity
from .argmax_search import Ids, Layer, Witnesses, search
from .hulls import Certificate, Decision, decide
from .inputs import Floats, real_matrix, real_vector, scaled

AT_ONCE = 8
"""Number of tokens that a worker process decides in one task."""


@dataclass(frozen=True, eq=False, repr=False)
class ArgmaxReport(Result, kind="argmaxable"):
    """For every token, a context vector that makes it the argmax, a certificate that none exists, or neither."""

    vocab: int
    """M."""
    embedding_size: int
    """d."""
    unargmaxable: Ids
    """Ids of the tokens that are the argmax of no h; each has one of `certificates`."""
    unknown: Ids
    """Ids of the tokens whose program was stopped, or whose margin is within roundoff."""
    least_margin: float | None
    """Smallest of ``margins``; ``None`` if no token is known to be the argmax."""
    largest_residual: float | None
    """Largest residual of a certificate; ``None`` if each token can be the argmax."""
    programs: int
    """Number of tokens for which a linear program was solved; the search decided the others."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """What was measured; empty for embeddings that were given as such."""
    equal: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    """Those of ``unargmaxable`` that have the row and the bias of another token: they are tied with it at best."""
    padding: Mapping[str, Any] = field(default_factory=dict)
    """Rows of W beyond the tokenizer's tokens: ``first``, ``last``, and those of them in ``unargmaxable`` and
    ``unknown``; empty if W has as many rows, or that is unknown."""
    seconds: float = 0.0
    """Wall-clock time."""
    contexts: Floats = field(default_factory=lambda: np.zeros((0, 0)), metadata=UNSAVED)
    """(M, d): h that makes each other token the argmax; NaN in the rows of unargmaxable and unknown tokens."""
    margins: Floats = field(default_factory=lambda: np.zeros(0), metadata=UNSAVED)
    """(M,): difference between the token's logit and the next one at that h, above all roundoff; NaN likewise."""
    certificates: Mapping[int, Certificate] = field(default_factory=dict, metadata=UNSAVED)
    """The certificate of each unargmaxable token, by its id."""

    def with_padding(self, first: int) -> ArgmaxReport:
        """Return this report with the rows of W from ``first`` as those beyond the tokenizer's tokens."""
        ids = {name: getattr(self, name) for name in ("unargmaxable", "unknown")}
        beyond = {name: tokens[tokens >= first].tolist() for name, tokens in ids.items()}
        return replace(self, padding={"first": first, "last": self.vocab - 1, **beyond})

    def quantities(self) -> Iterator[Quantity]:
        """Yield how many tokens are never the argmax, which these are, and how that was decided."""
        never, shown, unknown = self.unargmaxable, ANSWER | TABLE, len(self.unknown)
        others = self.vocab - len(never) - unknown
        some = f"{', '.join(map(str, never[:20]))}{', …' if len(never) > 20 else ''}"
        computed = f"d = {self.embedding_size:,}; linear programs solved for {self.programs:,} tokens"
        verdict = f"each of the {self.vocab:,} tokens is the argmax of some context vector"
        if len(never) or unknown:
            undecided = f"; {unknown:,} are undecided" if unknown else ""
            ties = f", {len(self.equal):,} of which have another's row and tie at best" if len(self.equal) else ""
            verdict = f"{len(never):,} of {self.vocab:,} tokens can never be the argmax{ties}{undecided}"
        yield Quantity("verdict", verdict, "verdict")
        yield Quantity("", len(never), "never the argmax", TABLE)
        yield Quantity("argmaxable", others, "argmaxable", shown)
        yield Quantity("", unknown, "undecided", shown)
        yield Quantity("", None, "computed", text=computed)
        if len(never):
            yield Quantity("", None, "ids", text=some)
        if self.padding:
            first, last = self.padding["first"], self.padding["last"]
            text = (
                f"ids {first:,} to {last:,} are rows of the output layer beyond the tokenizer's tokens; "
                f"{len(self.padding['unargmaxable']):,} of these {last + 1 - first:,} are never the argmax"
            )
            yield Quantity("", None, "padding", text=text)
        if unknown:
            yield Quantity("next", Sentence("a longer ", Parameter("limit"), " decides more tokens"), "next")
        elif len(never):
            after = Sentence(Function("head"), " shows which of their rows are equal, or look never trained")
            yield Quantity("next", after, "next")
        else:
            yield Quantity("next", Sentence(Function("need"), " measures how many dimensions a text needs"), "next")

    def panels(self) -> Drawings:
        """Return a panel of the margins by which tokens are the argmax; `OutputError` where there is none."""
        from ..results.plotting.measures import draw_descending

        margins = np.sort(self.margins[np.isfinite(self.margins)])[::-1]
        if not len(self.margins):
            raise OutputError("margins are not saved as JSON; the result of ", Function("argmaxable"), " draws them")
        if not len(margins):
            raise OutputError("no token has a finite margin as the argmax to draw; ", Function("head"), " draws W")
        return [partial(draw_descending, curves={"": margins}, ylabel="margin of the $i$-th token as the argmax")]


@typed
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

    Such an h exists unless the token lies in the convex hull of the others, biases included: :math:`λ ≥ 0`,
    :math:`\sum_j λ_j = 1, \sum_j λ_j w_j = w_i, \sum_j λ_j b_j ≥ b_i`. Directions and perceptron steps decide most
    tokens, a linear program (HiGHS) each of the others. The margin of a context vector exceeds the roundoff of the
    logits in float64; the residual of a certificate lies below it. Equal rows are never strictly largest.

    h is any vector: a model whose context vectors fill only a part of R^d (after a tanh, or a LayerNorm) makes the same
    tokens the argmax, or fewer. An increasing function on the logits changes nothing.

    Args:
        W: (M, d) output embeddings.
        b: (M,) output bias; −∞ masks a token, which then is the argmax of no h.
        seconds: time limit of each token's program; a token whose program is stopped is unknown.
        workers: number of processes; more than one need an importable main module (``if __name__ == "__main__"``).
        seed: seed of the random directions.
        progress: progress display.

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
    check_positive(workers=workers)
    check_above_zero(seconds=seconds)
    check_seed(seed)
    W = real_matrix(W, "W")
    bias = np.zeros(len(W)) if b is None else real_vector(b, len(W), "the bias", masked=True)
    (W, w_exponent), (bias, b_exponent) = scaled(W), scaled(bias)
    layer = Layer(W, bias)
    witnesses = Witnesses(layer)
    masked = np.setdiff1d(np.arange(layer.vocab), layer.allowed)
    nothing, programs = np.zeros(0, dtype=np.int64), 0
    certificates = {int(token): Certificate(nothing, np.zeros(0), 0.0, 0.0) for token in masked}
    with progress.bar("deciding", layer.vocab, "tokens", done=len(masked)) as bar:
        rivals = search(witnesses, seed=seed, bar=bar)
        for token, decision in _decisions(layer, rivals, seconds, workers, witnesses):
            before, programs = len(witnesses.missing), programs + 1
            if isinstance(decision, Certificate):
                residual = math.ldexp(decision.residual, w_exponent)
                deficit = math.ldexp(decision.bias_deficit, b_exponent)
                certificates[token] = replace(decision, residual=residual, bias_deficit=deficit)
            elif decision is not None:
                witnesses.offer(decision[None])
            proved = before - len(witnesses.missing) if isinstance(decision, np.ndarray) else 1
            bar.advance(proved, f"{len(certificates):,} never the argmax")
    # The context vector of one token may also prove another whose program was stopped.
    never = np.array(sorted(certificates), dtype=np.int64)
    known = never[np.isfinite(bias[never])]
    rows = np.column_stack([W, bias])[known]
    _, place, copies = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    missing, margins = witnesses.missing, np.ldexp(witnesses.margins, b_exponent)
    return ArgmaxReport(
        vocab=layer.vocab,
        embedding_size=layer.dimension,
        unargmaxable=never,
        unknown=missing[~np.isin(missing, never)],
        equal=known[copies[place.ravel()] > 1],
        least_margin=min(margins[np.isfinite(margins)].tolist(), default=None),
        largest_residual=max((each.residual for each in certificates.values()), default=None),
        contexts=np.ldexp(witnesses.contexts, b_exponent - w_exponent),
        margins=margins,
        certificates=certificates,
        programs=programs,
    )


def _decisions(
    layer: Layer, rivals: Mapping[int, Ids], seconds: float | None, workers: int, witnesses: Witnesses
) -> Iterator[tuple[int, Decision]]:
    """Yield each token with its decision, in the order in which they finish.

    One process leaves out the tokens that the context vector of another token has proved since.
    """
    workers = min(workers, -(-len(rivals) // AT_ONCE))
    if workers <= 1:
        for token, seen in rivals.items():
            if np.isnan(witnesses.margins[token]):
                yield _decide((layer, seconds), {token: seen})[0]
        return
    items = list(rivals.items())
    tasks = [dict(items[start : start + AT_ONCE]) for start in range(0, len(items), AT_ONCE)]
    for _, decisions in run_in_workers(_decide, (layer, seconds), tasks, processes=workers):
        yield from decisions


def _decide(how: tuple[Layer, float | None], task: Mapping[int, Ids]) -> list[tuple[int, Decision]]:
    layer, seconds = how
    return [
        (token, decide(layer, np.array([token]), layer.allowed[layer.allowed != token], seen, seconds=seconds))
        for token, seen in task.items()
    ]
