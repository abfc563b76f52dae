"""Generation from unrelated prompts, by the low rank of the extended logits (Golowich, Liu and Shetty 2026)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from ..core.checks import check_positive, check_seed, typed
from ..errors import ConfigurationError
from ..sources import ExtendedSource

CUT = 1e-6
"""Singular values of the probed logits below this share of the largest are roundoff of float32 logits."""


@dataclass(frozen=True, eq=False)
class LinearGeneration:
    """Tokens that were generated without giving the model their prompt, beside what the model says after it."""

    tokens: NDArray[np.int64]
    """(length,), the generated token ids."""
    kl: NDArray[np.float64]
    """(length,), KL(P‖Q) in nats of each step: P is the model's own next-token distribution after the prompt and the
    tokens before, and Q the one that was sampled from."""
    weights: NDArray[np.float64]
    """(histories − 1,), the coefficients of the unrelated prompts."""
    residual: float
    """What the combination leaves of the prompt's logits after the probing futures, relative to their norm."""


@typed
def linear_generation(source: ExtendedSource, *, length: int = 20, seed: int = 0) -> LinearGeneration:
    r"""Continue the last history of an extended logit matrix from the model's answers to the other histories alone.

    The logits of a prompt h after the probing futures are nearly a combination of those of unrelated prompts,
    :math:`L_{h, (f, z)} ≈ \sum_i c_i L_{h_i, (f, z)}`, because the matrix has low rank. The coefficients c are those of
    least squares over the source's futures. Each new token is drawn from
    :math:`\mathrm{softmax}_z \sum_i c_i L_{h_i, (y, z)}` for the tokens y generated so far: the model reads the
    unrelated prompts followed by y (LinGen, Golowich, Liu and Shetty, ICLR 2026, arXiv 2510.24966). It reads the prompt
    itself only after the probing futures, and for ``kl``, which says how far the generation is from its own.

    Args:
        source: an extended logit matrix, see `extended_logits`; its last history is the prompt.
        length: number of tokens to generate.
        seed: seed of the sampling.

    Raises:
        ConfigurationError: for fewer than two histories, or a length below 1.
    """
    check_positive(length=length)
    check_seed(seed)
    if (count := len(source.histories)) < 2:
        raise ConfigurationError("the prompt is the last history, and at least one other one is needed beside it")
    gram = np.zeros((count, count))
    for number in range(len(source.futures)):
        block = source.future(number).astype(np.float64)
        gram += block.T @ block
    weights = np.linalg.pinv(gram[:-1, :-1], rcond=CUT**2, hermitian=True) @ gram[:-1, -1]
    signed = np.append(weights, -1.0)
    residual = float(np.sqrt(max(signed @ gram @ signed, 0.0) / gram[-1, -1])) if gram[-1, -1] else 0.0
    generator, tokens, kl = np.random.default_rng(seed), np.empty(0, np.int64), np.empty(length)
    for step in range(length):
        logits = source.after(tokens).astype(np.float64)
        log_p, log_q = log_softmax(logits[:, -1]), log_softmax(logits[:, :-1] @ weights)
        kl[step] = np.exp(log_p) @ (log_p - log_q)
        tokens = np.append(tokens, generator.choice(len(log_q), p=np.exp(log_q)))
    return LinearGeneration(tokens, kl, weights, residual)
