"""The final norm of a model, as the ellipse that the states behind it lie on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core.full_precision import alone
from .checks import last_norm, sample, softmax_of
from .loading import Loadable, final_hidden, output_layer

PROBE = 2.0**10
"""Size of the entries that a norm is probed with: its ε is lost beside their squares, and a power of 2 is exact."""
TEXTS, LENGTH = 64, 2
"""Texts whose states show what ε makes of them, and their tokens."""


@dataclass(frozen=True, eq=False)
class Ellipse:
    """States h = β + γ n with ‖n‖² = d, and Σ n = 0 behind a LayerNorm (Finlayson et al. 2025)."""

    gamma: NDArray[np.float64]
    """(d,)."""
    beta: NDArray[np.float64]
    """(d,), zero for an RMSNorm without a bias."""
    centers: bool
    """Whether the norm subtracts the mean."""
    eps: float
    """Most by which ε of the norm makes ‖n‖²/d smaller than one: at most ε for states of mean square 1 or more, and for
    smaller ones four times the most that it is among the states of `TEXTS`."""
    scale: float = 1.0
    """Factor on the model's logits, which its configuration alone does not tell."""


@alone()
def final_norm(model: Loadable) -> tuple[nn.Module | None, Tensor]:
    """Return the norm right before a model's output layer, if there is one, and the states behind it for some ids."""
    with last_norm(model.body) as last, torch.no_grad():
        hidden = final_hidden(model.body, _ids(model))
    _, norm, output = last
    return (norm if norm is not None and torch.equal(output, hidden) else None), hidden


def _ids(model: Loadable) -> Tensor:
    return torch.arange(TEXTS * LENGTH).reshape(TEXTS, LENGTH) % model.input_size


@alone()
def final_ellipse(model: Loadable) -> Ellipse | None:
    """Return the ellipse of the norm right before a model's output layer; ``None`` if there is none.

    γ and β are what the norm makes of ± 2¹⁰ in turn, which every norm maps to ± γ + β, whatever its parameters mean.
    """
    body, ids = model.body, _ids(model)
    norm, hidden = final_norm(model)
    d = hidden.shape[-1]
    if norm is None or d % 2:
        return None
    signs = torch.tensor([1.0, -1.0], device=hidden.device, dtype=hidden.dtype).repeat(d // 2)
    with torch.no_grad():
        plus, minus, level = (norm(PROBE * each[None, None])[0, 0] for each in (signs, -signs, signs.abs()))
    up, down, constant, sign = (each.double().cpu().numpy() for each in (plus, minus, level, signs))
    beta = (up + down) / 2
    eps = float(getattr(norm, "variance_epsilon", getattr(norm, "eps", None)) or 0.0)
    gamma, layer = (up - down) / 2 * sign, output_layer(body)
    squares = (((hidden.double().cpu().numpy() - beta) / gamma) ** 2).mean(-1)
    inside = 1 - float(squares[squares > 1 / 2].min(initial=1.0))  # below are the states of padding, near zero
    scale = 1.0
    if isinstance(layer, nn.Linear):
        scale = softmax_of(layer, sample(body, ids[:1]), body.config, torch.float32, model.name)[0].scale
    return Ellipse(gamma, beta, bool(np.allclose(constant, beta)), max(eps, 4 * inside), scale)
