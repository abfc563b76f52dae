"""The piecewise linear increasing function (PLIF) of Ganea et al. 2019, with learnable slopes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.checks import check_positive, typed
from ..core.devices import exact, exact_device
from ..errors import ConfigurationError
from .base import ParameterSettings
from .blocked import first_order

MOST_KNOTS = 1 << 24
"""Largest number of pieces whose indices a float32 represents exactly."""
PIECE = 1 << 18
"""Numbers processed at a time; with their weights in float64 they take a few MiB."""
UNIT_SLOPE = math.log(math.e - 1)
"""v with softplus(v) = 1, the slope of the identity."""


@dataclass(frozen=True)
class Curve:
    """A piecewise linear function by its corners."""

    knots: Tensor
    """l_0 … l_P, (P + 1,), float64."""
    values: Tensor
    """f(l_0) … f(l_P), (P + 1,), float64."""


@dataclass(frozen=True)
class SlopeStatistics:
    """Statistics of the slopes of a `PLIF` (Ganea et al. 2019, table 2)."""

    mean: float
    std: float
    """Standard deviation of the population, with the divisor P."""
    min: float
    max: float


class PLIF(nn.Module):
    r"""A continuous increasing function, linear between equally spaced knots (Ganea et al. 2019, §4).

    On [l_i, l_{i+1}], with l_i = −T + i·Δ and Δ = 2T/P,

    .. math:: f(x) = f(l_i) + s_i (x - l_i), \quad f(l_i) = -T + Δ \sum_{j<i} s_j, \quad s_i = \log(1 + e^{v_i})

    and the first and last pieces continue outside [−T, T]. The free constant b_0 of Ganea et al. 2019 is fixed by
    f(−T) = −T: a softmax does not depend on it, and unit slopes then give the identity.

    Args:
        knots: P, the number of linear pieces on [−interval, interval].
        interval: T, half the width of the interval covered; f continues linearly outside.
        noise: standard deviation of the initial v around unit slope (1 in the authors' setting).
        learn_slopes: whether v is learned; Parthiban et al. 2021 found fixed random slopes as good.
        slope_learning_rate: learning rate of v, as a multiple of the model's.

    Raises:
        ConfigurationError: for a setting that is not positive (noise may be 0) or not finite, or more than 2²⁴ knots.
    """

    @typed
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
            raise ConfigurationError(f"PLIF takes at most 2²⁴ knots, not {knots}: float32 cannot index more pieces")
        if not 0 < slope_learning_rate < math.inf:
            raise ConfigurationError(f"slope_learning_rate must be above 0, not {slope_learning_rate}")
        self.knots, self.interval, self.slope_learning_rate = knots, float(interval), slope_learning_rate
        self.v = nn.Parameter(torch.randn(knots) * float(noise) + UNIT_SLOPE, requires_grad=learn_slopes)

    def parameter_settings(self) -> list[ParameterSettings]:
        """Return the optimizer settings of the slopes: their own learning rate, and no weight decay.

        The code of Parthiban et al. 2021 applies weight decay of 1.2e-6 to v as to all other weights. At its learning
        rate of 0.02 this reduces v by less than 1 % in 500 epochs of Penn Treebank.
        """
        return [ParameterSettings((self.v,), self.slope_learning_rate, weight_decay=False)]

    def slopes(self) -> Tensor:
        """Return the P slopes s = softplus(v), all positive."""
        return F.softplus(self.v)

    @torch.no_grad()
    def function(self) -> Curve:
        """Return the corners of the learned function, with f(−T) = −T."""
        slopes, width = exact(self.slopes()), 2 * self.interval / self.knots
        knots = torch.arange(self.knots + 1, dtype=torch.float64, device=slopes.device) * width - self.interval
        return Curve(knots, F.pad(width * prefix_sums(slopes), (1, 0)) - self.interval)

    @torch.no_grad()
    def slope_statistics(self) -> SlopeStatistics:
        """Return mean, standard deviation, least and largest slope."""
        slopes = exact(self.slopes())
        std, mean = torch.std_mean(slopes, correction=0)
        return SlopeStatistics(mean.item(), std.item(), slopes.min().item(), slopes.max().item())

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply f to each element."""
        function = _ByLoops if _has_loops(inputs) else _ByKernels
        result: Tensor = function.apply(inputs, self.slopes(), self.interval)
        return result


class _Pieces(NamedTuple):
    """The linear pieces of f, and the gradient of their slopes."""

    table: Tensor
    """f(l_i) and s_i, (P, 2): adjacent in memory, because random access takes most of the time."""
    interval: float

    @classmethod
    def of(cls, slopes: Tensor, interval: float, dtype: torch.dtype) -> _Pieces:
        # Prefix sums of up to 2²⁴ terms are computed in float64: their error is an error of the function.
        wide = exact(slopes)
        before = prefix_sums(wide) - wide
        table = torch.stack([2 * interval / len(wide) * before - interval, wide], 1)
        return cls(table.to(slopes.device, dtype), interval)

    @property
    def width(self) -> float:
        return 2 * self.interval / len(self.table)

    def slope_gradient(self, total: Tensor, inside: Tensor) -> Tensor:
        """Return Σ g ∂f/∂s_j, (P,), given Σ g and Σ g · (x − l_i) of each piece.

        s_j adds Δ s_j to every piece after j: the gradient has a reverse prefix sum without j itself.
        """
        return inside + self.width * (prefix_sums(total.flip(0)).flip(0) - total)


def _has_loops(inputs: Tensor) -> bool:
    """Return whether the compiled loops can process ``inputs``; ``torch.compile`` cannot trace them."""
    numbers = inputs.device.type == "cpu" and inputs.dtype in (torch.float32, torch.float64)
    return numbers and not torch.compiler.is_compiling()


class _ByLoops(torch.autograd.Function):
    """f and its gradients by `plif_loops`, which computes the pieces of the inputs again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, slopes: Tensor, interval: float) -> Tensor:
        from . import plif_loops  # imported here because it loads a compiler

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
    """f and its gradients by torch's kernels on any device: a table lookup, and backward a weighted histogram."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, slopes: Tensor, interval: float) -> Tensor:
        knots = slopes.numel()
        pieces = _Pieces.of(slopes, interval, torch.promote_types(inputs.dtype, torch.float32))
        width, table = pieces.width, torch.view_as_complex(pieces.table)
        result, offset, slope = (torch.empty_like(inputs, memory_format=torch.contiguous_format) for _ in range(3))
        index = torch.empty(inputs.shape, dtype=torch.int64, device=inputs.device)
        parts = zip(*(whole.view(-1).split(PIECE) for whole in (result, offset, slope, index)), strict=True)
        for x, (f, o, s, i) in zip(inputs.reshape(-1).split(PIECE), parts, strict=True):
            position = x.to(pieces.table.dtype).add(interval).div_(width)  # distance from −T, in pieces
            i.copy_(position.clamp(0, knots - 1).nan_to_num_())  # the offset of a NaN is NaN
            o.copy_(position.sub_(i).mul_(width))
            value, piece_slope = torch.view_as_real(table.index_select(0, i)).unbind(1)
            s.copy_(piece_slope)
            torch.addcmul(value, s, o, out=f)
            # An infinite input, such as the logit of a token masked by its bias, adds nothing to a slope's gradient.
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
            slope_gradient = _Pieces(table, ctx.interval).slope_gradient(total, inside).to(table.device, ctx.slope_type)
        return upstream * slope, slope_gradient, None


def histograms(index: Tensor, weights: Tensor, factors: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Return the sums of the weights, and of the weights times the factors, in each bin: float64, (bins,) each.

    They are on the `exact_device`.

    Both are added in one pass as the parts of complex numbers, because the random access to the bins takes most of the
    time. ``index`` (n,) holds int64 bins from 0; ``weights`` and ``factors`` have the shape (n,).
    """
    index, weights, factors = (each.to(exact_device(index.device)) for each in (index, weights, factors))
    sums = torch.zeros(bins, dtype=torch.complex128, device=index.device)
    both = torch.empty(min(PIECE, len(index)), 2, dtype=torch.float64, device=index.device)
    for piece, weight, factor in zip(index.split(PIECE), weights.split(PIECE), factors.split(PIECE), strict=True):
        filled = both[: len(piece)]
        filled[:, 0], filled[:, 1] = weight, weight * factor
        added = torch.view_as_complex(filled)
        if _must_be_deterministic(index):
            sums.index_put_((piece,), added, accumulate=True)  # after a stable sort, in one order
        else:
            sums.scatter_add_(0, piece, added)
    parts = torch.view_as_real(sums)
    return parts[:, 0], parts[:, 1]


def prefix_sums(values: Tensor) -> Tensor:
    """Return v_0, v_0 + v_1, …: (n,) → (n,); if need be in log₂ n elementwise steps (Hillis and Steele 1986)."""
    if not _must_be_deterministic(values):
        return torch.cumsum(values, 0)
    step = 1
    while step < len(values):
        values = torch.cat([values[:step], values[step:] + values[:-step]])
        step *= 2
    return values


def _must_be_deterministic(tensor: Tensor) -> bool:
    """Return whether sums must be bitwise reproducible on CUDA, whose kernels then raise an error.

    Torch's kernels add in a fixed order on the CPU.
    """
    return tensor.is_cuda and torch.are_deterministic_algorithms_enabled()
