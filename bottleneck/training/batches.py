"""A stream of tokens in parallel columns and short segments, for truncated backpropagation through time (BPTT)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import TrainingError
from ..language_models.reading import Batch

HALF_LENGTH_PROBABILITY = 0.05
"""Probability that a random length is drawn around half of bptt (Merity et al. 2018, §4.1)."""

SHORTEST = 5
"""Tokens of the shortest random segment, as in the code of AWD-LSTM."""

LARGEST_DEVIATIONS = 4
"""Largest excess of a random length over bptt, in standard deviations; it bounds the memory of a step."""


def columns(ids: NDArray[np.integer[Any]], batch_size: int) -> Tensor:
    """Cut a stream into ``batch_size`` equal columns, one after the other: (N,) → (N // B, B).

    The tokens after the last full row are left out. Ids in a file (`numpy.memmap`) stay in the file, in their own type;
    others are copied.
    """
    length = len(ids) // batch_size
    if length < 2:
        raise TrainingError(
            f"the training text has {len(ids)} tokens, too few for batch_size={batch_size}: "
            f"at most {len(ids) // 2} columns of two tokens are possible"
        )
    by_column = ids[: length * batch_size].reshape(batch_size, length).T
    return torch.from_numpy(by_column if isinstance(ids, np.memmap) else by_column.copy())


def lengths(rows: int, bptt: int, *, deviation: float = 0.0, seed: Sequence[int] = (0,)) -> list[int]:
    """Return the lengths of the segments of one epoch; their targets are all rows but the first.

    Args:
        rows: number of rows of the columns.
        bptt: mean length of most segments.
        deviation: standard deviation σ of the lengths: each is drawn from N(bptt, σ²), or with a probability of
            `HALF_LENGTH_PROBABILITY` from N(bptt / 2, σ²), rounded down, and is at least `SHORTEST` (or bptt) and
            at most bptt + `LARGEST_DEVIATIONS` σ. With 0 every segment has the length ``bptt``. The last segment takes
            the remaining rows.
        seed: seed of the draw.
    """
    total, least = rows - 1, min(SHORTEST, bptt)
    if not deviation:
        drawn = np.full(-(-total // bptt), bptt)
    else:
        generator, most = np.random.default_rng(seed), -(-total // least)
        means = np.where(generator.random(most) < HALF_LENGTH_PROBABILITY, bptt / 2, bptt)
        drawn = (
            generator.normal(means, deviation).astype(np.int64).clip(least, int(bptt + LARGEST_DEVIATIONS * deviation))
        )
    ends = np.minimum(np.cumsum(drawn), total)
    return [int(length) for length in np.diff(ends, prepend=0) if length]


def bptt_segments(data: Tensor, lengths: int | Sequence[int], *, start: int = 0) -> Iterator[Batch]:
    """Yield each segment's rows as inputs, int64, and as targets the rows one further.

    ``lengths`` holds the lengths of the segments, or is the length of all. ``start``, the end of a segment, skips all
    segments before it.
    """
    if isinstance(lengths, int):
        lengths = [lengths] * -(-(len(data) - 1) // lengths)
    position = 0
    for length in lengths:
        end = min(position + length, len(data) - 1)
        if position >= start:
            piece = data[position : end + 1].long().contiguous()
            yield Batch(piece[:-1], piece[1:])
        position = end
