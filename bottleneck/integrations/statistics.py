"""Rank, pairwise Kullback-Leibler (KL) divergence and gradient share of an output layer, to log during training."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..heads import Head
from ..language_models import ModelOnText
from ..measure import gradient, kld, rank
from ..sources import Source, open_source


def training_statistics(head: Head | nn.Linear, hidden: Any, targets: Any = None) -> dict[str, float]:
    """Return rank, effective rank, pairwise KL and the gradient's share of an output layer on held-out hidden states.

    The log-probabilities, T × M, are computed in blocks. The head's mode and gradients are not changed.

    Args:
        head: a `Head`, or the ``nn.Linear`` of a model's logits.
        hidden: (T, hidden_size), hidden states of T contexts.
        targets: (T,), ids of the next tokens; without them the gradient is not measured.

    Returns:
        ``rank`` and ``rank_centered`` at Press's tolerance, ``rank_low`` and ``rank_high`` of the interval,
        ``effective_rank_1e-3`` (the fewest directions that hold all but 10⁻³ of Σσ²), ``pairwise_kl`` in nats, and
        ``gradient_kept``, the share of the logit gradient's norm that reaches the hidden states (Godey and Artzi 2026).

    Raises:
        BottleneckError: for hidden states or targets that do not fit the head, or numbers that are not finite.

    Example:
        >>> import torch
        >>> statistics = training_statistics(torch.nn.Linear(4, 50), torch.randn(200, 4))
        >>> statistics["rank_centered"]
        5.0
    """
    return _statistics(open_source(head, hidden=hidden, targets=targets))


def model_statistics(model: nn.Module, data: Any, *, tokenizer: Any = None) -> dict[str, float]:
    """Return these statistics of a causal language model of transformers on a held-out text.

    Args:
        model: the model; its mode is restored.
        data: token ids, (N,) of one text or (B, L) of B texts; or a text with ``tokenizer``.
        tokenizer: tokenizer of a text.

    Returns:
        See `training_statistics`.
    """
    return _statistics(open_source(model, data=data, tokenizer=tokenizer, dtype="auto"))


def _statistics(source: Source) -> dict[str, float]:
    bias = source.head.bias if isinstance(source, ModelOnText) else None
    masks = bias is not None and bool(bias.isneginf().any())
    report = rank(source, inf="drop-columns" if masks else "refuse")
    effective = report.effective_rank["1e-3"]
    statistics = {
        "rank": report.rank.value,
        "rank_centered": report.rank_centered.value,
        "rank_low": report.rank.low,
        "rank_high": report.rank.high,
        "effective_rank_1e-3": float("nan") if effective is None else effective,
        "pairwise_kl": kld(source).kld,
    }
    if source.targets is not None:
        statistics["gradient_kept"] = gradient(source).kept
    return {name: float(value) for name, value in statistics.items()}
