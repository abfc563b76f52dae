"""Symmetric Dirichlet distributions, in blocks that can be drawn independently of each other or kept in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.checks import check_positive
from ..core.devices import exact
from ..errors import ConfigurationError
from ..heads.blocked import cleared

BLOCK_ENTRIES = 1 << 20
"""Probabilities of one block: they fit into the cache and are enough for a fast matrix product."""
SMALLEST_ALPHA, LARGEST_ALPHA = 1e-6, 1e6
"""Bounds between which every log-probability is finite and accurate in float32."""
LARGEST_SIZE = 2**31 - 1
"""Largest number of contexts, tokens and dimensions."""
DEFAULT_MEMORY = 2 << 30
"""Default of the largest size of P*, in bytes, that is kept in memory."""


def sample_dirichlet_log_probs(
    contexts: int, vocab: int, alpha: float, generator: torch.Generator, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    r"""Sample the logarithms of T distributions over M tokens from a symmetric Dirichlet(α).

    .. math:: \log P_x = \log G_x - \log \sum_{x'} G_{x'}, \quad G_x ∼ \mathrm{Gamma}(α)

    The gamma variates are drawn as logarithms, because they underflow: at α = 0.01 a third of them are below the
    smallest float32. Uniform variates have 24 bits in float32, so the gap between two log-probabilities is resolved to
    about 2⁻²⁴/α nats.

    Args:
        contexts: T.
        vocab: M.
        alpha: the concentration, between 1e-6 and 1e6.
        generator: generator of the draw; the sample is on its device.
        dtype: float32 or float64.

    Returns:
        (T, M), natural logarithms, each row's logsumexp 0 within roundoff.

    Raises:
        ConfigurationError: for T or M below one or α out of range.

    References:
        Ganea et al. 2019, eq. 15; Marsaglia and Tsang, A simple method for generating gamma variables, ACM Transactions
        on Mathematical Software 26 (2000).

    Example:
        >>> sample = sample_dirichlet_log_probs(4, 9, 0.001, torch.Generator().manual_seed(0))
        >>> bool(sample.isfinite().all()), sample.exp().sum(1).tolist()
        (True, [1.0, 1.0, 1.0, 1.0])
    """
    check_dirichlet(contexts, vocab, alpha)
    return torch.log_softmax(_log_gamma(contexts * vocab, alpha, generator, dtype).view(contexts, vocab), 1)


def check_dirichlet(contexts: int, vocab: int, alpha: float) -> None:
    """Refuse sizes and concentrations out of range."""
    check_positive(at_most=LARGEST_SIZE, contexts=contexts, vocab=vocab)
    if not SMALLEST_ALPHA <= alpha <= LARGEST_ALPHA:
        raise ConfigurationError(
            f"the Dirichlet concentration alpha must lie between {SMALLEST_ALPHA:g} and {LARGEST_ALPHA:g}, not {alpha}"
        )


def _log_gamma(count: int, alpha: float, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    r"""Return logarithms of Gamma(α) variates: (count,).

    With G ~ Gamma(α + 1) and E exponential, :math:`\log G - E/α` is the logarithm of a Gamma(α) variate. E needs no
    further draw: the margin by which a proposal is accepted, in logarithms, is exponential and independent of it.
    """
    log_cube_root, excess = _propose(count, alpha, generator, dtype)
    rejected = (excess > 0).logical_not_().nonzero().squeeze(1)
    while len(rejected):
        log_cube_root[rejected], excess[rejected] = _propose(len(rejected), alpha, generator, dtype)
        rejected = rejected[~(excess[rejected] > 0)]
    return log_cube_root.mul_(3).sub_(excess, alpha=1 / alpha).add_(math.log(alpha + 2 / 3))


def _propose(count: int, alpha: float, generator: torch.Generator, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    r"""Propose Gamma(α + 1) variates :math:`d v^3`, :math:`d = α + 2/3`, :math:`v = 1 + x/\sqrt{9d}`, x normal.

    Returns log v, and the excess :math:`x^2/2 + d - d v^3 + d \log v^3 - \log u` with u uniform. A proposal is accepted
    where the excess is positive, and rejected where it is not, or is NaN.
    """
    d = alpha + 2 / 3
    x = torch.randn(count, generator=generator, device=generator.device, dtype=dtype)
    log_v = torch.mul(x, 1 / math.sqrt(9 * d)).log1p_()
    excess = x.square_().mul_(0.5).add_(log_v, alpha=3 * d).sub_(torch.mul(log_v, 3).expm1_(), alpha=d)
    uniform = torch.rand(count, generator=generator, device=generator.device, dtype=dtype)
    return log_v, excess.sub_(uniform.neg_().log1p_())


@dataclass(frozen=True)
class DirichletBlocks:
    """T distributions over M tokens as consecutive blocks of rows, each determined by the seed and the block's number.

    The blocks do not depend on T, so a larger experiment begins with the distributions of a smaller one.
    """

    contexts: int
    """T."""
    vocab: int
    """M."""
    alpha: float
    """The concentration."""
    seed: int = 0
    """Seed of all blocks."""
    device: str = "cpu"
    """Device of the blocks; each kind of device draws its own."""

    def __post_init__(self) -> None:
        check_dirichlet(self.contexts, self.vocab, self.alpha)

    @property
    def rows_at_once(self) -> int:
        """Rows of each block but the last."""
        return max(1, BLOCK_ENTRIES // self.vocab)

    def __len__(self) -> int:
        return -(-self.contexts // self.rows_at_once)

    def rows(self, block: int) -> slice:
        """Return the slice of contexts that a block holds."""
        start = block * self.rows_at_once
        return slice(start, min(start + self.rows_at_once, self.contexts))

    def log_probs(self, block: int) -> Tensor:
        """Draw one block of log P*: float32, (n, M)."""
        state = np.random.SeedSequence((self.seed, block)).generate_state(1, np.uint64)
        generator = torch.Generator(self.device).manual_seed(int(state[0] >> np.uint64(1)))
        rows = self.rows(block)
        # The last block is drawn whole and cut: rows must not depend on T.
        sample = sample_dirichlet_log_probs(self.rows_at_once, self.vocab, self.alpha, generator)
        return sample[: rows.stop - rows.start]

    def __iter__(self) -> Iterator[Tensor]:
        return (self.log_probs(block) for block in range(len(self)))


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
        total: Any = 0.0
        for log_probs in blocks:
            total += entropy(exact(log_probs)).sum()
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
