"""The LayerNorm before the output layer of a Hugging Face model, and its effect on the rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..core.full_precision import full_precision
from ..heads import Head, RankBound
from ..spectrum import EPS

NORM_ROUNDINGS = 4
"""Largest number of times that a LayerNorm rounds a coordinate."""


@dataclass(frozen=True)
class FinalNorm:
    """A LayerNorm right before the output layer: for v = 1/γ and every hidden state, h·v is one constant."""

    name: str
    offset: bool
    """Whether the constant β·v is not zero; if so, all hidden states lie in an affine space without the origin."""


def final_norm(model: nn.Module, run: Callable[[], object], hidden: Tensor, *, eps: float) -> FinalNorm | None:
    r"""Return the LayerNorm whose output is the input of the output layer, or ``None``.

    It computes :math:`h = γ ⊙ \hat x + β` with :math:`\hat x · 1 = 0`, so :math:`h·γ^{-1} = β·γ^{-1}`. This linear
    condition on all hidden states is tested on their values, because module names differ between models.

    Args:
        model: the body and its output layer.
        run: function that runs the model on the contexts of ``hidden``.
        hidden: (L, d), the input of the output layer.
        eps: relative roundoff of the model's type.
    """
    made: dict[str, tuple[nn.Module, Tensor]] = {}
    handles = [
        module.register_forward_hook(lambda module, _, output, name=name: made.update({name: (module, output)}))
        for name, module in model.named_modules()
        if "norm" in type(module).__name__.lower()
    ]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    for name, (module, output) in made.items():
        if not isinstance(output, Tensor) or output.numel() != hidden.numel():
            continue
        if torch.equal(output.reshape(hidden.shape), hidden) and (norm := _condition(name, module, hidden, eps)):
            return norm
    return None


def _condition(name: str, module: nn.Module, hidden: Tensor, eps: float) -> FinalNorm | None:
    with full_precision():
        states = hidden.double()
        gain, shift = getattr(module, "weight", None), getattr(module, "bias", None)
        gain = torch.ones_like(states[0]) if gain is None else gain.detach().double()
        shift = torch.zeros_like(states[0]) if shift is None else shift.detach().double()
        if gain.shape != states[0].shape:
            return None
        for gamma in (gain, gain + 1):  # Nemotron keeps γ − 1
            if bool((gamma == 0).any()):
                continue
            normal = 1 / gamma
            constant = float(shift @ normal)
            # The norm rounds each of d coordinates a few times, up or down at random. The row's mean and deviation,
            # which all coordinates share, are rounded once, in float32 or wider.
            size = torch.linalg.norm(states * normal, dim=1) + torch.linalg.norm(shift * normal)
            shared = (states * normal).abs().sum(1) + (shift * normal).abs().sum()
            limit = NORM_ROUNDINGS * (eps * size + min(eps, EPS["float32"]) * shared)
            if bool(((states @ normal - constant).abs() <= limit).all()):
                return FinalNorm(name, offset=abs(constant) > float(limit.mean()))
        return None


def bound_of(head: Head, norm: FinalNorm | None, *, exact_norm: bool) -> RankBound:
    """Return the head's rank bound, and describe the effect of a final LayerNorm.

    Args:
        head: the output layer.
        norm: the LayerNorm before it.
        exact_norm: whether the norm's output is precise enough for its condition to hold in the measurement.
    """
    bound, d = head.rank_bound, head.embedding_size
    if norm is None or bound.raw is None:
        return bound
    if not exact_norm:
        why = "hidden states come from a LayerNorm, whose one linear condition the body's rounding breaks"
        return replace(bound, why=f"{bound.why}; {why}")
    raw, centered = reached(d, int(head.bias is not None and bool(head.bias.any())), norm)
    why = f"hidden states come from a LayerNorm, so they lie in {d - 1} dimensions"
    why += " off the origin" if norm.offset else " through the origin"
    why += f", and the rank reaches {raw} raw and {centered} row-centred"
    return replace(bound, why=f"{bound.why}; {why}")


def reached(d: int, bias: int, norm: FinalNorm | None) -> tuple[int, int]:
    """Return the raw and row-centred rank of generic weights after this norm; a bias of zeros counts as no bias.

    After a LayerNorm the columns of [H, 1] span d dimensions instead of d + 1, because a combination of H's columns is
    the constant β·v. If it is not zero, a bias adds no dimension; if it is zero, H has rank d − 1.
    """
    states = d if norm is None or norm.offset else d - 1
    beside = bias if norm is None or not norm.offset else 0
    return states + beside + 1, states + beside
