"""What the tests of sources share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from softmax_bottleneck.sources import Source


def rows_of(source: Source, rows: int | None = None) -> NDArray[Any]:
    """Read all blocks of a source, of so many rows each; they follow each other without a gap."""
    blocks = list(source.blocks(source.ranges(rows)))
    ends = np.cumsum([len(block.log_probs) for block in blocks])
    assert [block.start for block in blocks] == [0, *ends[:-1]]
    assert {block.log_probs.dtype.name for block in blocks} == {source.dtype}
    return np.concatenate([block.log_probs for block in blocks])
