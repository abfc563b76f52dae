"""Symmetric Dirichlet distributions in log space, any block of which can be made again alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigurationError

BLOCK_ENTRIES = 1 << 20
"""Probabilities of one block: they stay in cache while they are used, and fill a matrix product."""
SMALLEST_ALPHA, LARGEST_ALPHA = 1e-6, 1e6
"""Between these every log-probability is finite and has its digits in float32."""


def sample_dirichlet_log_probs(
    contexts: int, vocab: int, alpha: float, generator: torch.Generator, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    r"""Sample the logarithms of T distributions over M tokens from a symmetric Dirichlet(α) (LMS paper, eq. 15).

    .. math:: \log P_x = \log G_x - \log \sum_{x'} G_{x'}, \quad G_x ∼ \mathrm{Gamma}(α)

    The gamma variates are themselves drawn as logarithms, so nothing underflows: at α = 0.01 a third of them are
    below what float32 can hold. Uniform variates have 24 bits in float32, so the gap between two log-probabilities is
    resolved to about 2⁻²⁴/α nats.

    Args:
        contexts: T.
        vocab: M.
        alpha: the concentration, between 1e-6 and 1e6.
        generator: its device is where the sample is made.
        dtype: float32 or float64.

    Returns:
        (T, M), natural logarithms, each row's logsumexp 0 within roundoff.

    Raises:
        ConfigurationError: for T or M below one or α out of range.

    References:
        Marsaglia and Tsang, A simple method for generating gamma variables, ACM TOMS 26 (2000).

    Example:
        >>> sample = sample_dirichlet_log_probs(4, 9, 0.001, torch.Generator().manual_seed(0))
        >>> bool(sample.isfinite().all()), sample.exp().sum(1).tolist()
        (True, [1.0, 1.0, 1.0, 1.0])
    """
    check_dirichlet(contexts, vocab, alpha)
    return torch.log_softmax(_log_gamma(contexts * vocab, alpha, generator, dtype).view(contexts, vocab), 1)


def check_dirichlet(contexts: int, vocab: int, alpha: float) -> None:
    """Refuse sizes below one and concentrations out of range."""
    if contexts < 1 or vocab < 1:
        raise ConfigurationError(
            f"there must be at least one context and one token, not {contexts} contexts over {vocab} tokens"
        )
    if not SMALLEST_ALPHA <= alpha <= LARGEST_ALPHA:
        raise ConfigurationError(
            f"the Dirichlet concentration alpha must lie between {SMALLEST_ALPHA:g} and {LARGEST_ALPHA:g}, not {alpha}"
        )


def _log_gamma(count: int, alpha: float, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    r"""Return logarithms of Gamma(α) variates: (count,).

    With G ~ Gamma(α + 1) and E exponential, :math:`\log G - E/α` is the logarithm of a Gamma(α) variate. E costs no
    draw of its own: by how much a proposal's logarithm is accepted is exponential and independent of the proposal.
    """
    log_cube_root, excess = _propose(count, alpha, generator, dtype)
    rejected = (excess > 0).logical_not_().nonzero().squeeze(1)
    while len(rejected):
        log_cube_root[rejected], excess[rejected] = _propose(len(rejected), alpha, generator, dtype)
        rejected = rejected[~(excess[rejected] > 0)]
    return log_cube_root.mul_(3).sub_(excess, alpha=1 / alpha).add_(math.log(alpha + 2 / 3))


def _propose(count: int, alpha: float, generator: torch.Generator, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    r"""Propose Gamma(α + 1) variates :math:`d v^3`, :math:`d = α + 2/3`, :math:`v = 1 + x/\sqrt{9d}`, x normal.

    Returns log v, and the excess :math:`x^2/2 + d - d v^3 + d \log v^3 - \log u` of the accepted ones, which is
    positive; the others' is not, or is not a number.
    """
    d = alpha + 2 / 3
    x = torch.randn(count, generator=generator, device=generator.device, dtype=dtype)
    log_v = torch.mul(x, 1 / math.sqrt(9 * d)).log1p_()
    excess = x.square_().mul_(0.5).add_(log_v, alpha=3 * d).sub_(torch.mul(log_v, 3).expm1_(), alpha=d)
    uniform = torch.rand(count, generator=generator, device=generator.device, dtype=dtype)
    return log_v, excess.sub_(uniform.neg_().log1p_())


@dataclass(frozen=True)
class DirichletBlocks:
    """T distributions over M tokens as consecutive blocks of rows, each a function of its number alone.

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
    """Where blocks are made; another kind of device makes others."""

    def __post_init__(self) -> None:
        """Refuse what `sample_dirichlet_log_probs` would."""
        check_dirichlet(self.contexts, self.vocab, self.alpha)

    @property
    def rows_at_once(self) -> int:
        """Rows of each block but the last."""
        return max(1, BLOCK_ENTRIES // self.vocab)

    def __len__(self) -> int:
        """Return the number of blocks."""
        return -(-self.contexts // self.rows_at_once)

    def rows(self, block: int) -> slice:
        """Return which contexts a block holds."""
        start = block * self.rows_at_once
        return slice(start, min(start + self.rows_at_once, self.contexts))

    def log_probs(self, block: int) -> Tensor:
        """Make one block of log P*: float32, (n, M)."""
        state = np.random.SeedSequence((self.seed, block)).generate_state(1, np.uint64)
        generator = torch.Generator(self.device).manual_seed(int(state[0] >> np.uint64(1)))
        rows = self.rows(block)
        # Whole blocks are drawn even where fewer rows are left: the rows must not depend on T.
        sample = sample_dirichlet_log_probs(self.rows_at_once, self.vocab, self.alpha, generator)
        return sample[: rows.stop - rows.start]

    def __iter__(self) -> Iterator[Tensor]:
        """Make all blocks, one after another."""
        return (self.log_probs(block) for block in range(len(self)))
