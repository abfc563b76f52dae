"""What an output layer can express, as a few numbers to log while a model trains."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..heads import Head
from ..measure import gradient, kld, rank
from ..models.huggingface import HuggingFaceOptions
from ..sources import Source, open_source


def training_statistics(head: Head | nn.Linear, hidden: Any, targets: Any = None) -> dict[str, float]:
    """Return rank, effective rank, pairwise KL and the gradient's share of an output layer on held-out hidden states.

    It takes a pass over the T × M log-probabilities, in blocks; the head keeps its mode and its gradients.

    Args:
        head: a `Head`, or the ``nn.Linear`` of a model's logits.
        hidden: (T, hidden_size), what the head is given for T contexts.
        targets: (T,), the token ids that came after them; without them there is no gradient to measure.

    Returns:
        ``rank`` and ``rank_centered`` at Press's tolerance, ``rank_low`` and ``rank_high`` of the interval,
        ``effective_rank_1e-3`` (the fewest directions that hold all but 10⁻³ of Σσ²), ``pairwise_kl`` in nats, and
        ``gradient_kept``, the share of the logit gradient's norm that reaches the hidden states (Godey and Artzi 2026).

    Raises:
        BottleneckError: for hidden states or targets that do not fit the head, or numbers that are not finite.

    Example:
        >>> import torch
        >>> found = training_statistics(torch.nn.Linear(4, 50), torch.randn(200, 4))
        >>> found["rank_centered"]
        5.0
    """
    return _statistics(open_source(head, hidden=hidden, targets=targets))


def model_statistics(model: nn.Module, data: Any, *, tokenizer: Any = None) -> dict[str, float]:
    """Return the same of a causal language model of transformers on a held-out text.

    Args:
        model: the model as it trains; it keeps its mode.
        data: token ids, (B, L) consecutive pieces of a text, or (N,); or a text with ``tokenizer``.
        tokenizer: for a text.

    Returns:
        See `training_statistics`.
    """
    length = data.shape[1] if getattr(data, "ndim", 0) == 2 else None
    options = HuggingFaceOptions(context_length=length, stride=length) if length else None
    return _statistics(open_source(model, data=data, tokenizer=tokenizer, hugging_face=options, dtype="auto"))


def _statistics(source: Source) -> dict[str, float]:
    report = rank(source)
    effective = report.to_dict()["effective_rank"]["1e-3"]
    found = {
        "rank": report.rank.value,
        "rank_centered": report.rank_centered.value,
        "rank_low": report.rank.low,
        "rank_high": report.rank.high,
        "effective_rank_1e-3": float("nan") if effective is None else effective,
        "pairwise_kl": kld(source).kld,
    }
    if source.targets is not None:
        found["gradient_kept"] = gradient(source).kept
    return {name: float(value) for name, value in found.items()}
