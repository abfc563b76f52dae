"""What measured ranks say of an output layer, in one sentence, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import Function, Parameter, Sentence
from ..spectrum import EPS, RankEstimate
from ..spectrum.judge import OF_ROUNDING

BEYOND = Sentence("a larger d or another output layer; first ", Function("need"))
DRAW = Sentence(Function("spectrum", "plot()"), " draws the singular values about the tolerance")
PRECISION = Sentence(Parameter("eps"), " says how precise the numbers are")
AGAIN = "measure log_softmax of logits in float32 or float64"
HIDDEN_SIZE = Sentence(Parameter("estimate_hidden_size"), " finds d, if a softmax made the rows")
REMEDY = re.compile("[;:] (take|leave|scale|give|shift) ")
"""The remedy that a doubt ends with."""
MISSING = (
    "directions of the hidden states, the output embeddings or the log-partition are missing or lie below the tolerance"
)


class Verdict(NamedTuple):
    """A sentence about measured ranks and one about what to do next, both without a full stop."""

    sentence: str
    next: str
    """Empty where nothing follows."""


def verdict(
    raw: RankEstimate,
    centered: RankEstimate,
    *,
    shape: tuple[int, int],
    bound: Mapping[str, Any],
    embedding_size: int | None,
    kind: str | None,
    distinct: tuple[int, int] | None = None,
    assumed: str | None = None,
) -> Verdict:
    """Return whether an output layer is at its bound, from a determinate rank where there is one.

    Args:
        raw: rank of log P.
        centered: rank of the row-centred log P.
        shape: (T, M).
        bound: upper bounds ``raw`` and ``centered`` on both, or ``None``.
        embedding_size: d, if it is known.
        kind: kind of the source.
        distinct: number of different rows and columns, if some are repeated.
        assumed: type of the numbers, if it was inferred from them.
    """
    (T, full), d = shape, embedding_size
    rank, limit, name = raw, bound["raw"], "rank"
    if not rank.determinate and centered.determinate and bound["centered"] is not None:
        rank, limit, name, full = centered, bound["centered"], "row-centred rank", full - 1
    if limit is not None and limit >= full:
        limit = None  # the shape limits the rank, not the output layer
    most = "" if limit is None else f"{limit:,}{_formula(limit, d)}"
    if limit is not None and rank.value == limit and (rank.determinate or (rank.at_least and rank.low == limit)):
        return Verdict(f"at its bound: the output layer allows {name} {most}", BEYOND)
    if not rank.determinate:
        return _open(rank, name, most, d, assumed=assumed, of_a_model=kind != "matrix")
    if not rank.value:
        return Verdict("every entry is zero", "")
    if kind == "extended" and rank.value == full:
        return Verdict(f"too few histories: {full:,} show no {name} above {full:,}", "measure more histories")
    if limit is None:
        of = f"{rank.value:,} of {min(T, full):,}"
        return _without_bound(rank.value, of, shape, distinct or shape, d, of_a_model=kind != "matrix")
    if limit >= T and rank.value == (distinct or shape)[0]:
        return Verdict(
            f"too few contexts: {T:,} show no {name} above {rank.value:,}, and the output layer allows {most}",
            f"measure more than {limit:,} contexts",
        )
    if rank.value > limit:
        return Verdict(
            f"above its bound: {name} {rank.value:,}, where algebra allows {most}; the numbers are less precise than "
            "eps says",
            Sentence("measure with a larger ", Parameter("eps")),
        )
    return Verdict(
        f"below its bound: {name} {rank.value:,} of at most {most}{f' in {T:,} contexts' * (limit >= T)}; {MISSING}",
        DRAW,
    )


def _formula(bound: int, d: int | None) -> str:
    """Return the bound in terms of the embedding size d, where it is about d."""
    return "" if d is None or not 0 <= bound - d <= 2 else " = d" + (f" + {bound - d}" if bound > d else "")


def _open(rank: RankEstimate, name: str, most: str, d: int | None, *, assumed: str | None, of_a_model: bool) -> Verdict:
    """Return the verdict of an indeterminate rank: why, and what would settle it."""
    allowed = f", and the output layer allows {most}" if most else ""
    if rank.at_least:
        doubt = rank.doubt or "a sketch gives only this lower bound"
        settles = "a larger width or the method tsqr settles it"
        return Verdict(Sentence(f"open: the {name} is at least {rank.low:,}{allowed}; ", doubt), settles)
    if not rank.doubt:
        is_narrow = of_a_model and EPS.get(assumed or "", 0.0) > EPS["float32"]
        doubt, settles = "it depends on the tolerance", AGAIN if is_narrow else PRECISION if assumed else DRAW
        if d is not None and rank.low > d + 2:
            beyond = f"beyond a softmax with d = {d:,}, which has at most rank {d + 2:,}"
            return Verdict(f"{beyond}: {name} {rank}, depending on the tolerance", "")
    else:
        doubt, again = rank.doubt, AGAIN if of_a_model and not REMEDY.search(rank.doubt) else ""
        unrounded = (Parameter("eps", assumed), " settles it, if the numbers were never rounded to another type")
        assumed = assumed if doubt.startswith(OF_ROUNDING) else None
        settles = Sentence(*(unrounded if assumed else ()), "; otherwise " if assumed and again else "", again)
    return Verdict(Sentence(f"open: the {name} is {rank}{allowed}; ", doubt), settles)


def _without_bound(
    value: int, of: str, shape: tuple[int, int], distinct: tuple[int, int], d: int | None, *, of_a_model: bool
) -> Verdict:
    """Return the verdict of a determinate rank where no bound is known, ``of`` the largest one."""
    (T, M), rows = shape, "contexts" if of_a_model else "rows"
    if value in distinct and value < min(shape):
        repeated = rows if value == distinct[0] else "columns"
        too_few = repeated == "contexts"
        return Verdict(
            f"{'too few different contexts: ' if too_few else ''}rank {of}, as many as there are different {repeated}",
            f"measure more than {M:,} different contexts" if too_few else "",
        )
    if d is not None and d + 2 < min(shape) and value < M - 1:
        softmax = f"softmax with d = {d:,}, which has at most rank {d + 2:,}: rank {of}"
        return Verdict(f"beyond a {softmax}" if value > d + 2 else f"no more than a {softmax}", "")
    if not of_a_model:
        return Verdict(f"rank {of}{': full rank' if value == min(shape) else ', below full rank'}", "")
    if value == M - 1 < T:
        return Verdict(f"full rank but for one direction: {of}", "")
    if value < min(shape):
        return Verdict(
            f"below full rank: {of}; no bound of the output layer is known",
            HIDDEN_SIZE,
        )
    if T < M:
        return Verdict(f"too few contexts: full rank, {of}, for so few", f"measure more than {M:,} contexts")
    return Verdict(f"not a bottleneck: full rank, {of}", "")
