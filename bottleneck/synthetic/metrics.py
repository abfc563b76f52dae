"""Measures of a fitted model, computed in float64."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.devices import exact, exact_device
from ..core.full_precision import full_precision
from ..heads import Head
from ..measure.pairwise_kld import pairwise_kld
from ..spectrum import matrix_spectrum, numerical_rank
from ..theory import frobenius_lower_bound
from ..theory.context_vectors import attainable
from .dirichlet import DirichletBlocks, entropy

TOP = 10
"""Tokens compared by `Agreement.top_overlap`."""
SAMPLE = 256
"""Largest number of contexts whose log-probability matrix is decomposed."""
NEWTON_ENTRIES = 1 << 27
"""Largest M · D · contexts for which the attainable divergence is computed, so that it takes seconds."""
GAP = 1e-8
"""Largest error of an attainable divergence, in nats."""


@dataclass(frozen=True)
class Agreement:
    """How well a model's distributions Q agree with P*: means over all contexts."""

    mode_match: float
    """Share of contexts with argmax P* = argmax Q (Ganea et al. 2019, eq. 10)."""
    kl: float
    """KL(P* ‖ Q) in nats."""
    top_overlap: float
    """Share of the ten likeliest tokens of P* that are among the ten likeliest of Q; of all tokens if M < 10."""
    entropy: float
    """Mean entropy of P* in nats."""


@torch.no_grad()
def agreement(head: Head, contexts: Tensor, blocks: DirichletBlocks) -> Agreement:
    """Return how well the model's distributions agree with P*, block by block.

    Args:
        head: head to evaluate, in float64.
        contexts: (T, hidden_size).
        blocks: P*.
    """
    exact_head, sums = _exact(head), torch.zeros(4, dtype=torch.float64, device=exact_device(contexts.device))
    k = min(TOP, blocks.vocab)
    with full_precision():
        for block, sample in enumerate(blocks):
            log_p = normalized(sample)
            log_q = exact_head.log_prob(exact(contexts[blocks.rows(block)]))
            best_p, best_q = log_p.topk(k, 1).indices, log_q.topk(k, 1).indices
            sums += torch.stack(
                [
                    (log_p.argmax(1) == log_q.argmax(1)).double().sum(),
                    divergence(log_p, log_q).sum(),
                    (best_p.unsqueeze(2) == best_q.unsqueeze(1)).double().sum() / k,
                    entropy(log_p).sum(),
                ]
            )
    return Agreement(*(sums / blocks.contexts).tolist())


def normalized(sample: Tensor) -> Tensor:
    """Return float32 log-probabilities in float64, normalized again."""
    return torch.log_softmax(exact(sample), 1)


def _exact(head: Head) -> Head:
    """Return a copy of a head in float64, on its `exact_device`."""
    return copy.deepcopy(head).to(exact_device(head.weight.device), torch.float64)


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(p ‖ q) of each row in nats: (n, M), (n, M) → (n,)."""
    return torch.linalg.vecdot(log_p.exp(), log_p - log_q)


def matrices(head: Head, contexts: Tensor, blocks: DirichletBlocks) -> dict[str, Any]:
    """Measure log P* and log Q of the first contexts as matrices.

    Returns:
        ``contexts``; ``pairwise_kl`` of P* over pairs of different contexts, and ``pairwise_kl_expected``,
        (M − 1)/(Mα); numerical ``rank`` and ``rank_centered`` of log Q at float64 roundoff, each with ``low`` and
        ``high``; ``squared_error``, ‖log P* − log Q‖_F², and its lower bounds ``eckart_young`` for a log-linear head of
        this embedding size.
    """
    log_p, rows = _first(blocks, min(SAMPLE, blocks.contexts))
    true, d = matrix_spectrum(log_p), head.embedding_size
    with full_precision():
        log_q = _exact(head).log_prob(exact(contexts[rows]))
    n, M = log_p.shape
    spectrum = matrix_spectrum(log_q)
    pairs = pairwise_kld(log_p.cpu().numpy())
    ranks = {
        name: numerical_rank(values, shape=(n, M), eps="float64")
        for name, values in {"rank": spectrum.values, "rank_centered": spectrum.centered}.items()
    }
    return {
        "contexts": n,
        "pairwise_kl": pairs.kld * n / (n - 1) if n > 1 else None,
        "pairwise_kl_expected": expected_pairwise_kl(M, blocks.alpha),
        **{name: {"value": rank.value, "low": rank.low, "high": rank.high} for name, rank in ranks.items()},
        "squared_error": float((log_p - log_q).square().sum()),
        "eckart_young": {
            "raw": frobenius_lower_bound(true.values, d) ** 2,
            "centered": frobenius_lower_bound(true.centered, d, centered=True) ** 2,
        },
    }


def expected_pairwise_kl(vocab: int, alpha: float) -> float:
    """Return E[KL(p ‖ p′)] of two independent symmetric Dirichlet(α) distributions over M tokens: (M − 1)/(Mα).

    >>> expected_pairwise_kl(100, 0.1)
    9.9
    """
    return (vocab - 1) / (vocab * alpha)


@torch.no_grad()
def reachable(head: Head, contexts: Tensor, blocks: DirichletBlocks) -> dict[str, Any] | None:
    """Solve for the context vectors of least KL divergence, with the fitted embeddings fixed, for the first contexts.

    Returns:
        ``contexts``, their number; means over them, in nats: ``fitted_kl``, ``kl`` at the best vectors, and ``gap``, an
        upper bound on the error of ``kl``; ``largest_gap``; ``fitted_mode_match``, and ``mode_match`` at the best
        vectors; Newton ``steps``. ``None`` for a model that is not log-linear, whose problem is not convex.
    """
    most = max(16, NEWTON_ENTRIES // (blocks.vocab * head.embedding_size))
    log_p, rows = _first(blocks, min(SAMPLE, blocks.contexts, most))
    factors = head.scores(contexts[rows]).linear
    if factors is None:
        return None
    h, W = exact(factors.contexts), exact(factors.weight)
    bias = None if factors.bias is None else exact(factors.bias)
    with full_precision():
        best = attainable(log_p, W, bias=bias, start=h, tolerance=GAP)
        fitted, log_q = (torch.log_softmax(F.linear(vectors, W, bias), 1) for vectors in (h, best.contexts))
    return {
        "contexts": len(log_p),
        "fitted_kl": float(divergence(log_p, fitted).mean()),
        "kl": float(best.kl.mean()),
        "gap": float(best.gap.mean()),
        "largest_gap": float(best.gap.max()),
        "fitted_mode_match": float((log_p.argmax(1) == fitted.argmax(1)).double().mean()),
        "mode_match": float((log_p.argmax(1) == log_q.argmax(1)).double().mean()),
        "steps": best.steps,
    }


def _first(blocks: DirichletBlocks, count: int) -> tuple[Tensor, slice]:
    """Return log P* of the first ``count`` contexts, and their slice."""
    needed = range(-(-count // blocks.rows_at_once))
    return normalized(torch.cat([blocks.log_probs(block) for block in needed])[:count]), slice(0, count)
