"""PLIF: a piecewise linear increasing function with very many learnable slopes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import ConfigurationError
from .first_order import first_order

UNIT_SLOPE = math.log(math.e - 1)
"""softplus(v) = 1, the slope of the identity."""


class PLIF(nn.Module):
    r"""A continuous increasing function, linear between equally spaced knots (LMS paper §4).

    On [l_i, l_{i+1}], with l_i = −T + i·Δ and Δ = 2T/P,

    .. math:: f(x) = f(l_i) + s_i (x - l_i), \quad f(l_i) = -T + Δ \sum_{j<i} s_j, \quad s_i = \log(1 + e^{v_i})

    and the first and last pieces go on outside [−T, T]. The paper's free constant b_0 is fixed by
    f(−T) = −T: a softmax does not see it, and unit slopes then give the identity.

    Args:
        knots: P, the number of intervals.
        interval: T, half the width of the interval covered.
        noise: standard deviation of the initial v around unit slope (1 in the authors' setting).
    """

    def __init__(self, *, knots: int = 100_000, interval: float = 20.0, noise: float = 1.0) -> None:
        super().__init__()
        if knots < 1 or interval <= 0 or noise < 0:
            raise ConfigurationError(
                f"PLIF needs knots ≥ 1, interval > 0 and noise ≥ 0, not {knots}, {interval} and {noise}"
            )
        self.knots, self.interval = knots, float(interval)
        self.v = nn.Parameter(torch.randn(knots) * noise + UNIT_SLOPE)

    def slopes(self) -> Tensor:
        """Return the P slopes s = softplus(v), all positive."""
        return F.softplus(self.v)

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply f to each element."""
        result: Tensor = _PiecewiseLinear.apply(inputs, self.slopes(), self.interval)
        return result


class _PiecewiseLinear(torch.autograd.Function):
    """f and its gradients: a lookup forward, a weighted histogram backward."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, slopes: Tensor, interval: float) -> Tensor:
        knots = slopes.numel()
        width = 2 * interval / knots
        # Prefix sums of up to 10⁶ terms are made in float64: their error would be the function's.
        before = torch.cumsum(slopes, 0, dtype=torch.float64) - slopes
        at_knot = (width * before - interval).to(inputs.dtype)
        index = ((inputs + interval) / width).floor_().clamp_(0, knots - 1).nan_to_num_()  # NaN shows in offset
        offset = inputs - (index * width - interval)
        index = index.long()
        slope = slopes[index]
        ctx.save_for_backward(index, offset, slope)
        ctx.knots, ctx.width = knots, width
        return torch.addcmul(at_knot[index], slope, offset)

    @staticmethod
    @first_order
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        index, offset, slope = ctx.saved_tensors
        slope_gradient = None
        if ctx.needs_input_grad[1]:
            flat, weights = index.reshape(-1), upstream.reshape(-1).double()
            inside = torch.bincount(flat, weights * offset.reshape(-1), minlength=ctx.knots)
            total = torch.bincount(flat, weights, minlength=ctx.knots)
            # s_j lifts every interval after j by Δ: a reverse cumulative sum, without j itself.
            after = total.flip(0).cumsum(0).flip(0) - total
            slope_gradient = (inside + ctx.width * after).to(slope.dtype)
        return upstream * slope, slope_gradient, None
