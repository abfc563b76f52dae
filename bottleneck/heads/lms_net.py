"""A small increasing network on the logits, the function of `LMSNet`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.checks import check_positive, typed
from ..core.devices import sum_type
from ..errors import ConfigurationError
from .base import ParameterSettings
from .blocked import first_order

PIECE = 1 << 15
"""Logits processed at a time on the CPU."""


class MonotonicNetwork(nn.Module):
    r"""An increasing network of one hidden layer (Daniels and Velikova 2010; Ganea et al. 2019, eq. 14).

    .. math:: f(x) = \sum_k v_k\, σ(u_k x + b_k), \quad u_k, v_k > 0

    Positive u and v are softplus of free parameters; the biases are free. The equation's constant b is left out,
    because a softmax does not depend on it. Away from the ends of [−interval, interval], f starts as the identity up to
    a constant: with centres Δ apart, v = Δ and u = 2/Δ, the slope is 1 within 0.3 % where sigmoids overlap.
    f is bounded, so that no bias, not even −∞, gives a token the probability 0.

    Args:
        hidden_units: number of sigmoids, K in Ganea et al. 2019, who do not state their number.
        interval: the sigmoids' centres start evenly spread over [−interval, interval], where f starts as the identity.

    Raises:
        ConfigurationError: for fewer than one unit, or an interval that is not positive.
    """

    @typed
    def __init__(self, *, hidden_units: int = 10, interval: float = 20.0) -> None:
        super().__init__()
        check_positive(hidden_units=hidden_units)
        if not 0 < interval < math.inf:
            raise ConfigurationError(f"a monotonic network needs a finite interval > 0, not {interval}")
        spacing, interval = 2 * interval / hidden_units, float(interval)
        centers = spacing * (torch.arange(hidden_units) + 0.5) - interval
        self.u = nn.Parameter(_inverse_softplus(torch.full((hidden_units,), 2 / spacing)))
        self.v = nn.Parameter(_inverse_softplus(torch.full((hidden_units,), spacing)))
        self.b = nn.Parameter(-2 / spacing * centers)

    def parameter_settings(self) -> list[ParameterSettings]:
        """Exclude the function's parameters from weight decay, which would change its shape."""
        return [ParameterSettings(tuple(self.parameters()), weight_decay=False)]

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply f to each element."""
        result: Tensor = _SigmoidSum.apply(inputs, F.softplus(self.u), F.softplus(self.v), self.b)
        return result


class _SigmoidSum(torch.autograd.Function):
    """f and its gradients, for ``PIECE`` inputs at a time, so that the activations of all units stay in the cache."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, u: Tensor, v: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, u, v, b)
        u, v, b = (tensor.to(inputs.dtype) for tensor in (u, v, b))
        result = torch.empty_like(inputs, memory_format=torch.contiguous_format)
        for x, f in zip(_pieces(inputs), _pieces(result), strict=True):
            torch.mv(_activations(x, u, b).T, v, out=f)
        return result

    @staticmethod
    @first_order
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, ...]:
        inputs, *parameters = ctx.saved_tensors
        u, v, b = (tensor.to(inputs.dtype) for tensor in parameters)
        inputs_gradient = torch.empty_like(inputs, memory_format=torch.contiguous_format)
        # Columns: Σ g·σ, Σ g·σ′ and Σ g·x·σ′ of each unit.
        sums = torch.zeros(len(u), 3, dtype=sum_type(u.device), device=u.device)
        pieces = zip(*(_pieces(whole) for whole in (inputs, upstream, inputs_gradient)), strict=True)
        for x, g, into in pieces:
            sigma = _activations(x, u, b)
            sums[:, 0] += sigma @ g
            slope = sigma.addcmul_(sigma, sigma, value=-1)
            # At an infinite x every σ′ is zero, and 0 · ∞ must be 0.
            finite = x.nan_to_num(nan=math.nan, posinf=0.0, neginf=0.0)
            sums[:, 1:] += slope @ torch.stack([g, g * finite]).T
            torch.mv(slope.T, u * v, out=into).mul_(g)
        v_gradient, b_gradient, u_gradient = sums.to(u.dtype).unbind(1)
        gradients = zip((v * u_gradient, v_gradient, v * b_gradient), parameters, strict=True)
        return inputs_gradient, *(gradient.to(parameter.dtype) for gradient, parameter in gradients)


def _pieces(tensor: Tensor) -> tuple[Tensor, ...]:
    """Cut a tensor into flat pieces of ``PIECE`` numbers on the CPU; on a GPU return one piece."""
    flat = tensor.reshape(-1)
    return flat.split(PIECE if tensor.device.type == "cpu" else max(1, len(flat)))


def _activations(x: Tensor, u: Tensor, b: Tensor) -> Tensor:
    """Return σ(u_k x + b_k): (n,) → (K, n)."""
    return torch.outer(u, x).add_(b.unsqueeze(1)).sigmoid_()


def _inverse_softplus(values: Tensor) -> Tensor:
    """Return r with softplus(r) = ``values``, for values of any size."""
    return values + torch.log(-torch.expm1(-values))
