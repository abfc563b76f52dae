"""What the tests of sources share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from softmax_bottleneck.sources import Source

from .states import D, M


def rows_of(source: Source, rows: int | None = None) -> NDArray[Any]:
    """Read all blocks of a source, of so many rows each; they follow each other without a gap."""
    blocks = list(source.blocks(source.ranges(rows)))
    ends = np.cumsum([len(block.log_probs) for block in blocks])
    assert [block.start for block in blocks] == [0, *ends[:-1]]
    assert {block.log_probs.dtype.name for block in blocks} == {source.dtype}
    return np.concatenate([block.log_probs for block in blocks])


@pytest.fixture
def text() -> tuple[Tensor, Tensor, Tensor]:
    """W, token ids, and states (T, d) that predict the next token, as before a final norm: 0.01 times theirs."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(M, D, generator=generator)
    ids = torch.randint(M, (200,), generator=generator)
    following = weight[torch.cat([ids[1:], ids[:1]])] + 0.3 * torch.randn(200, D, generator=generator)
    return weight, ids, F.rms_norm(following, (D,))
