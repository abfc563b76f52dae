"""The distributions that models are fitted to, kept in memory or drawn again in each pass."""

from __future__ import annotations

import torch
from torch import Tensor

from ..heads.blocked import cleared
from .dirichlet import DirichletBlocks

DEFAULT_MEMORY = 2 << 30
"""Default of the largest size of P*, in bytes, that is kept in memory."""


class Targets:
    """P* block by block.

    Args:
        blocks: the distributions' logarithms.
        max_memory: largest size of P*, in bytes, that is kept in memory. A larger P* is drawn again block by block in
            each pass, which makes a pass several times slower.
    """

    def __init__(self, blocks: DirichletBlocks, *, max_memory: int = DEFAULT_MEMORY) -> None:
        self.blocks = blocks
        self.cached = 4 * blocks.contexts * blocks.vocab <= max_memory
        self._kept: list[Tensor] = []
        total = torch.zeros((), dtype=torch.float64, device=blocks.device)
        for log_probs in blocks:
            total += entropy(log_probs.double()).sum()
            if self.cached:
                self._kept.append(_normal(log_probs))
        self.mean_entropy = float(total) / blocks.contexts
        """Mean entropy of P* in nats, a lower bound on the cross entropy."""

    def probabilities(self, block: int) -> Tensor:
        """Return P* of one block: float32, (n, M), without subnormal numbers. Do not change it in place."""
        return self._kept[block] if self.cached else _normal(self.blocks.log_probs(block))

    def rows(self, batch: range) -> int:
        """Return the number of contexts in a batch of blocks."""
        return self.blocks.rows(batch[-1]).stop - self.blocks.rows(batch[0]).start

    def batches(self, contexts: int) -> list[range]:
        """Return the blocks of each minibatch, at least one and together at most ``contexts`` contexts."""
        at_once = max(1, contexts // self.blocks.rows_at_once)
        return [range(start, min(start + at_once, len(self.blocks))) for start in range(0, len(self.blocks), at_once)]


def _normal(log_probs: Tensor) -> Tensor:
    """Return the probabilities, in place, with 0 for subnormal ones."""
    return cleared(log_probs.exp_())


def entropy(log_probs: Tensor) -> Tensor:
    """Return −Σ p log p of each row in nats: (n, M) → (n,)."""
    return -torch.linalg.vecdot(log_probs.exp(), log_probs)
