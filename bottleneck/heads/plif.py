"""PLIF: a piecewise linear increasing function with very many learnable slopes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import ConfigurationError
from .base import ParameterSettings
from .checks import check_positive
from .deterministic import PIECE, histograms, prefix_sums
from .first_order import first_order

MOST_KNOTS = 1 << 24
"""Pieces that a float32 can number."""
UNIT_SLOPE = math.log(math.e - 1)
"""softplus(v) = 1, the slope of the identity."""


@dataclass(frozen=True)
class Curve:
    """A piecewise linear function by its corners."""

    knots: Tensor
    """l_0 … l_P, (P + 1,), float64."""
    values: Tensor
    """f(l_0) … f(l_P), (P + 1,), float64."""


@dataclass(frozen=True)
class SlopeStatistics:
    """The slopes of a `PLIF` in four numbers (LMS paper table 2)."""

    mean: float
    std: float
    """Standard deviation of the population, with the divisor P."""
    min: float
    max: float


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
        learn_slopes: whether v is learned.
        slope_learning_rate: learning rate of v, as a multiple of the model's.

    Raises:
        ConfigurationError: for a setting that is not positive (noise may be 0) or not finite, or more than 2²⁴ knots.
    """

    def __init__(
        self,
        *,
        knots: int = 100_000,
        interval: float = 20.0,
        noise: float = 1.0,
        learn_slopes: bool = True,
        slope_learning_rate: float = 1.0,
    ) -> None:
        super().__init__()
        check_positive(knots=knots)
        if not (0 < interval < math.inf and 0 <= noise < math.inf):
            raise ConfigurationError(f"PLIF needs a finite interval > 0 and noise ≥ 0, not {interval} and {noise}")
        if knots > MOST_KNOTS:
            raise ConfigurationError(f"PLIF takes at most 2²⁴ knots, not {knots}: a float32 tells no more pieces apart")
        if not 0 < slope_learning_rate < math.inf:
            raise ConfigurationError(f"slope_learning_rate must be above 0, not {slope_learning_rate}")
        self.knots, self.interval, self.slope_learning_rate = knots, float(interval), slope_learning_rate
        self.v = nn.Parameter(torch.randn(knots) * noise + UNIT_SLOPE, requires_grad=learn_slopes)

    def parameter_settings(self) -> list[ParameterSettings]:
        """Return how an optimizer should treat the slopes: at their own rate, without weight decay.

        The code of Parthiban et al. 2021 decays v like all other weights, by 1.2e-6. At its rate of 0.02 that takes
        less than 1 % off v in 500 epochs of Penn Treebank.
        """
        return [ParameterSettings((self.v,), self.slope_learning_rate, weight_decay=False)]

    def slopes(self) -> Tensor:
        """Return the P slopes s = softplus(v), all positive."""
        return F.softplus(self.v)

    @torch.no_grad()
    def function(self) -> Curve:
        """Return the curve learned so far, from f(−T) = −T on."""
        slopes, width = self.slopes().double(), 2 * self.interval / self.knots
        knots = torch.arange(self.knots + 1, dtype=torch.float64, device=slopes.device) * width - self.interval
        return Curve(knots, F.pad(width * prefix_sums(slopes), (1, 0)) - self.interval)

    @torch.no_grad()
    def slope_statistics(self) -> SlopeStatistics:
        """Return mean, standard deviation, least and largest slope."""
        slopes = self.slopes().double()
        std, mean = torch.std_mean(slopes, correction=0)
        return SlopeStatistics(mean.item(), std.item(), slopes.min().item(), slopes.max().item())

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply f to each element."""
        function = _ByLoops if _has_loops(inputs) else _ByKernels
        result: Tensor = function.apply(inputs, self.slopes(), self.interval)
        return result


class _Pieces(NamedTuple):
    """The linear pieces of f, and what their slopes' gradient is made from."""

    table: Tensor
    """f(l_i) and s_i, (P, 2): side by side, since random access is what takes the time."""
    interval: float

    @classmethod
    def of(cls, slopes: Tensor, interval: float, dtype: torch.dtype) -> _Pieces:
        # Prefix sums of up to 10⁶ terms are made in float64: their error would be the function's.
        before = prefix_sums(slopes.double()) - slopes
        return cls(torch.stack([2 * interval / len(slopes) * before - interval, slopes], 1).to(dtype), interval)

    @property
    def width(self) -> float:
        return 2 * self.interval / len(self.table)

    def slope_gradient(self, total: Tensor, inside: Tensor) -> Tensor:
        """Return Σ g ∂f/∂s_j, (P,), given of each piece Σ g and Σ g · (x − l_i).

        s_j lifts every piece after j by Δ: a reverse prefix sum, without j itself.
        """
        return inside + self.width * (prefix_sums(total.flip(0)).flip(0) - total)


def _has_loops(inputs: Tensor) -> bool:
    """Return whether the compiled loops take these numbers; what ``torch.compile`` traces must be torch's own."""
    numbers = inputs.device.type == "cpu" and inputs.dtype in (torch.float32, torch.float64)
    return numbers and not torch.compiler.is_compiling()


class _ByLoops(torch.autograd.Function):
    """f and its gradients by `plif_loops`, which finds each number's piece anew on the way back."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, slopes: Tensor, interval: float) -> Tensor:
        from . import plif_loops  # loads a compiler

        pieces = _Pieces.of(slopes, interval, inputs.dtype)
        ctx.save_for_backward(inputs, pieces.table)
        ctx.interval, ctx.slope_type = interval, slopes.dtype
        return plif_loops.values(inputs, pieces.table, interval)

    @staticmethod
    @first_order
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from . import plif_loops

        inputs, table = ctx.saved_tensors
        gradient, sums = plif_loops.gradients(inputs, upstream, table, ctx.interval)
        slope_gradient = None
        if ctx.needs_input_grad[1]:
            slope_gradient = _Pieces(table, ctx.interval).slope_gradient(*sums.unbind(1)).to(ctx.slope_type)
        return gradient, slope_gradient, None


class _ByKernels(torch.autograd.Function):
    """f and its gradients by torch's kernels, on any device: a lookup forward, a weighted histogram backward."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, slopes: Tensor, interval: float) -> Tensor:
        knots = slopes.numel()
        pieces = _Pieces.of(slopes, interval, torch.promote_types(inputs.dtype, torch.float32))
        width, table = pieces.width, torch.view_as_complex(pieces.table)
        result, offset, slope = (torch.empty_like(inputs, memory_format=torch.contiguous_format) for _ in range(3))
        index = torch.empty(inputs.shape, dtype=torch.int64, device=inputs.device)
        parts = zip(*(whole.view(-1).split(PIECE) for whole in (result, offset, slope, index)), strict=True)
        for x, (f, o, s, i) in zip(inputs.reshape(-1).split(PIECE), parts, strict=True):
            place = x.to(pieces.table.dtype).add(interval).div_(width)  # in pieces, from −T
            i.copy_(place.clamp(0, knots - 1).nan_to_num_())  # NaN shows in the offset
            o.copy_(place.sub_(i).mul_(width))
            value, slope_there = torch.view_as_real(table.index_select(0, i)).unbind(1)
            s.copy_(slope_there)
            torch.addcmul(value, s, o, out=f)
            # At an infinite input, as of a token masked by its bias, no slope's derivative is a number.
            o.nan_to_num_(nan=math.nan, posinf=0.0, neginf=0.0)
        ctx.save_for_backward(index.view(-1), offset, slope, pieces.table)
        ctx.interval, ctx.slope_type = interval, slopes.dtype
        return result

    @staticmethod
    @first_order
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        index, offset, slope, table = ctx.saved_tensors
        slope_gradient = None
        if ctx.needs_input_grad[1]:
            total, inside = histograms(index, upstream.reshape(-1), offset.view(-1), len(table))
            slope_gradient = _Pieces(table, ctx.interval).slope_gradient(total, inside).to(ctx.slope_type)
        return upstream * slope, slope_gradient, None
