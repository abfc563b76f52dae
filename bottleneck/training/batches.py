"""A stream of tokens cut into parallel columns and short stretches (truncated BPTT)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import TrainingError


def columns(ids: NDArray[np.int64], batch_size: int) -> Tensor:
    """Cut a stream into ``batch_size`` equal columns, one after the other: (N,) → (N // B, B).

    The few tokens past the last full row are left out, as in every published recipe.
    """
    length = len(ids) // batch_size
    if length < 2:
        raise TrainingError(
            f"the training text has {len(ids)} tokens, too few for batch_size={batch_size}: "
            f"at most {len(ids) // 2} columns of two tokens are possible"
        )
    return torch.from_numpy(ids[: length * batch_size].reshape(batch_size, length).T.copy())


def stretches(data: Tensor, bptt: int, *, start: int = 0) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield ``(position, inputs, targets)``: at most ``bptt`` rows, and the rows one further."""
    for position in range(start, len(data) - 1, bptt):
        length = min(bptt, len(data) - 1 - position)
        yield position, data[position : position + length], data[position + 1 : position + 1 + length]
