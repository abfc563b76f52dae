"""One sentence about a measured rank: whether this output layer is the bottleneck."""

from __future__ import annotations

from collections.abc import Iterator

from ..spectrum import RankEstimate


def verdict(
    rank: RankEstimate,
    *,
    shape: tuple[int, int],
    bound: int | None,
    embedding_size: int | None,
    distinct: tuple[int, int] | None = None,
    of_a_model: bool = True,
) -> str:
    """Return what a rank says of the output layer, as one sentence without a full stop.

    Args:
        rank: rank of log P.
        shape: (T, M).
        bound: largest rank that algebra allows, before the shape limits it; ``None`` if there is none or it is unknown.
        embedding_size: d, if it is known.
        distinct: number of different rows and of different columns, if some are repeated.
        of_a_model: whether the rows are a model's log-probabilities; a matrix of any kind has rows and columns only.

    Example:
        >>> rank = RankEstimate(282, 282, 282, True, 1e-3, 9.0, 0.5, 1e-9, 5e8, False)
        >>> verdict(rank, shape=(82430, 10000), bound=282, embedding_size=280)
        'd = 280 bounds the rank at 282 and the matrix has exactly 282: this output layer is the bottleneck'
    """
    full = min(shape)
    least = "at least " if rank.at_least else ""
    if bound is None:
        sentence = f"no bound; rank {least}{rank.value:,} of {full:,}"
    else:
        limit = f"the rank is at most {bound:,}"
        limit = limit if embedding_size is None else f"d = {embedding_size:,} bounds the rank at {bound:,}"
        sentence = f"{limit} and the matrix has {'exactly ' if _is_reached(rank, bound) else least}{rank.value:,}"
    if not (rank.high or rank.determinate):
        return f"{sentence.partition(' and ')[0].partition('; ')[0]}; the numbers are too coarse to tell any rank"
    interval = "" if rank.low == rank.high or rank.at_least else f", between {rank.low:,} and {rank.high:,}"
    interval += ", depending on the tolerance" if interval else ""
    return f"{sentence}{interval}: {', '.join(_meaning(rank, shape, bound, distinct or shape, of_a_model))}"


def _is_reached(rank: RankEstimate, bound: int) -> bool:
    return rank.value == bound and (rank.determinate or (rank.at_least and rank.low == bound))


def _meaning(
    rank: RankEstimate, shape: tuple[int, int], bound: int | None, distinct: tuple[int, int], of_a_model: bool
) -> Iterator[str]:
    """Yield what follows from the numbers; the first part may be followed by a reason to doubt it."""
    (T, M), full = shape, min(shape)
    if rank.at_least and not (bound and _is_reached(rank, bound)):
        yield "a sketch gives only this lower bound"
    elif not rank.determinate and not rank.at_least:
        yield "indeterminate"
    elif not rank.value:
        yield "every entry is zero"
    elif bound is None or bound >= M:
        yield _unbounded(rank.value, shape, distinct) if of_a_model else _of_a_matrix(rank.value, shape, distinct)
    elif bound >= full:
        yield f"{T:,} contexts are too few to show the bound; measure more than {bound:,}"
    elif rank.value > bound:
        yield "more than algebra allows, so the numbers are less precise than eps says; measure with a larger eps"
    elif rank.value == bound:
        yield "this output layer is the bottleneck"
    else:
        yield (
            "the bound is not reached, because directions of the hidden states, the output embeddings or the "
            "log-partition are missing or lie below the tolerance"
        )
    if rank.doubt:
        yield rank.doubt


def _unbounded(value: int, shape: tuple[int, int], distinct: tuple[int, int]) -> str:
    (T, M), (rows, columns) = shape, distinct
    if value == rows < min(shape):
        return f"as many as there are different contexts; measure more than {M:,} different ones"
    if value == columns < min(shape):
        return "as many as there are different columns"
    if value == M - 1 < T:
        return "full rank but for one direction"
    if value < min(shape):
        return "below full rank, although no bound is known"
    if T < M:
        return f"full rank for so few contexts; measure more than {M:,}"
    return "full rank, so this output layer is no bottleneck"


def _of_a_matrix(value: int, shape: tuple[int, int], distinct: tuple[int, int]) -> str:
    if value == min(distinct) < min(shape):
        return f"as many as there are different {'rows' if value == distinct[0] else 'columns'}"
    return "full rank" if value == min(shape) else "below full rank"
