"""The output layer of a Hugging Face model in full precision, checked against the model's own logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import SourceError
from ...full_precision import full_precision
from ...heads.scores import Factors
from ...spectrum import EPS
from ..base import Bound
from .hf_model import Sample

SCALES = ("logit_scale", "lm_head_multiplier", "logits_scaling")
"""Configuration keys of a factor on the logits (Cohere's, Falcon-H1's, HyperCLOVA X's) or of one they are divided by
(Granite's), or of one that comes before the output layer (MiniCPM's): the model's own logits tell."""
SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
"""Of the largest logit c in c tanh(z / c): Gemma's, RecurrentGemma's, xLSTM's."""

SAMPLE = 64
"""Contexts on which our logits must be the model's."""
ROUNDINGS = 4
"""How often a product may be rounded to the body's type: itself, the bias, and room for sums kept in it."""
NORM_ROUNDINGS = 4
"""How often a coordinate may be rounded on its way through a LayerNorm."""
AFTERWARDS = 8
"""How often a logit may be rounded behind the output layer: by a scale, a cap and its tanh, theirs and ours."""
_THROUGH_A_FUNCTION = "measure it through a function, softmax_bottleneck.rank(f, data=…)"


@dataclass(frozen=True)
class OutputLayer:
    r"""Logits :math:`z = \mathrm{cap}(s (W h + b))` with :math:`\mathrm{cap}(z) = c \tanh(z / c)` or none."""

    weight: Tensor
    """W, (M, d), in the type of the measurement."""
    bias: Tensor | None
    """b, (M,)."""
    scale: float
    """s."""
    soft_cap: float | None
    """c."""
    tied: bool
    """Whether W is the input embeddings too."""

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Return log P in the type of W: (n, d) → (n, M)."""
        return torch.log_softmax(self.logits(hidden), -1)

    def factors(self, hidden: Tensor) -> Factors:
        """Return sH, W and sb of the logits, where no function is applied to them."""
        bias = None if self.bias is None else self.bias * self.scale
        return Factors(hidden.to(self.weight) * self.scale, self.weight, bias)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of hidden states (n, d) of any type, in the type of W: (n, M)."""
        with full_precision():
            return self._capped(F.linear(*self.factors(hidden)))

    def behind(self, product: Tensor) -> Tensor:
        """Return the logits that are made of W h + b, in its type."""
        return self._capped(product * self.scale)

    def _capped(self, logits: Tensor) -> Tensor:
        return logits if self.soft_cap is None else logits.div_(self.soft_cap).tanh_().mul_(self.soft_cap)


def full_precision_layer(
    model: nn.Module, layer: nn.Linear, found: Sample, *, dtype: torch.dtype, what: str
) -> OutputLayer:
    """Return the output layer as the model has it: what its configuration says, checked on a sample of its numbers.

    Args:
        model: the body and its output layer.
        layer: that.
        found: what it makes of a text's first tokens.
        dtype: of the measurement.
        what: the model's name.

    Raises:
        SourceError: when the model's logits are not numbers, or not those of this layer.
    """
    embeddings = model.get_input_embeddings()  # type: ignore[operator]
    ours = OutputLayer(
        weight=layer.weight.detach().to(dtype),
        bias=None if layer.bias is None else layer.bias.detach().to(dtype),
        scale=1.0,
        soft_cap=None,
        tied=embeddings is not None and embeddings.weight is layer.weight,
    )
    _check_product(ours, found, what)
    if found.logits.shape != found.product.shape:
        raise SourceError(
            f"{what} keeps {found.logits.shape[-1]:,} of the {found.product.shape[-1]:,} logits of its output layer: "
            f"it cannot be taken apart; {_THROUGH_A_FUNCTION}"
        )
    soft_cap = soft_cap_of(model.config)
    candidates = [replace(ours, scale=scale, soft_cap=soft_cap) for scale in scales(model.config)]
    differences = [_difference(candidate.behind(found.probe), found.logits) for candidate in candidates]
    eps = max(torch.finfo(of.dtype).eps for of in (found.probe, found.logits))
    for candidate, difference in zip(candidates, differences, strict=True):
        if bool((difference <= AFTERWARDS * eps * candidate.behind(found.probe).abs()).all()):
            return candidate
    raise SourceError(
        f"the logits of {what} are not those of its output layer as its configuration describes it: they differ by up "
        f"to {min(float(difference.max()) for difference in differences):.3g}, more than roundoff explains; "
        f"{_THROUGH_A_FUNCTION}"
    )


def scales(config: Any) -> list[float]:
    """Return by what the logits may be multiplied behind the linear layer, from the configuration."""
    scale = 1.0
    for value in _values(config, SCALES):
        scale *= value
    return list(dict.fromkeys([scale, 1 / scale, 1.0]))


def soft_cap_of(config: Any) -> float | None:
    """Return the soft cap on the logits, from the configuration."""
    return next(iter(_values(config, SOFT_CAPS)), None)


def _values(config: Any, names: tuple[str, ...]) -> list[float]:
    values = (getattr(config.get_text_config(), name, None) for name in names)
    return [float(value) for value in values if isinstance(value, int | float) and value]


def _check_product(ours: OutputLayer, found: Sample, what: str) -> None:
    """Refuse an output layer that is not a product with its weight, plus its bias.

    A product of d terms rounded to the body's type is off by at most eps Σ|h_i w_i|, whatever the order of its sum.
    """
    exact = ours.logits(found.hidden)
    if not bool((exact < torch.inf).all()):
        raise SourceError(
            f"the logits of {what} are not finite: its weights are damaged, or its hidden states overflow in a type as "
            "narrow as float16; download the model again, or use --dtype float32"
        )
    with full_precision():
        size = F.linear(found.hidden.to(ours.weight).abs(), ours.weight.abs())
        if ours.bias is not None:
            size += ours.bias.abs()
    eps = max(torch.finfo(of.dtype).eps for of in (found.hidden, found.product, exact))
    difference = _difference(exact, found.product)
    if not bool((difference <= ROUNDINGS * eps * size.clamp_(min=torch.finfo(torch.float32).tiny)).all()):
        raise SourceError(
            f"the output layer of {what} is no product with its weight: what it makes differs from that by up to "
            f"{float(difference.max()):.3g}, more than rounding with eps = {eps:.2g} explains; {_THROUGH_A_FUNCTION}"
        )


def logit_difference(layer: OutputLayer, found: Sample) -> float:
    """Return the largest difference between our logits of a sample and those that the model's own products make."""
    ours = layer.logits(found.hidden)
    return float(_difference(ours, layer.behind(found.product.to(ours))).max())


def _difference(ours: Tensor, theirs: Tensor) -> Tensor:
    """Return |ours − theirs|; −∞ on both sides, a token that is masked by its bias, is no difference."""
    theirs = theirs.to(ours)
    return torch.where(theirs == ours, 0.0, (theirs - ours).abs())


@dataclass(frozen=True)
class FinalNorm:
    """A LayerNorm right before the output layer: for v = 1/γ and every hidden state, h·v is one constant."""

    name: str
    offset: bool
    """Whether the constant β·v is not zero: then all hidden states lie in an affine space that misses the origin."""


def final_norm(model: nn.Module, run: Callable[[], object], hidden: Tensor, *, eps: float) -> FinalNorm | None:
    r"""Return the LayerNorm whose output the output layer is given, if there is one.

    It gives :math:`h = γ ⊙ \hat x + β` with :math:`\hat x · 1 = 0`, so :math:`h·γ^{-1} = β·γ^{-1}`: one linear
    condition on all hidden states, looked for in the numbers, as modules go by many names.

    Args:
        model: the body and its output layer.
        run: makes ``hidden`` anew.
        hidden: (L, d), what the output layer is given.
        eps: of the model's type.
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
        if torch.equal(output.reshape(hidden.shape), hidden) and (found := _condition(name, module, hidden, eps)):
            return found
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
            # Each of d coordinates is rounded a few times on its way through the norm, up or down by chance; the row's
            # mean and deviation, which all share, are rounded once, in float32 or wider.
            size = torch.linalg.norm(states * normal, dim=1) + torch.linalg.norm(shift * normal)
            shared = (states * normal).abs().sum(1) + (shift * normal).abs().sum()
            limit = NORM_ROUNDINGS * (eps * size + min(eps, EPS["float32"]) * shared)
            if bool(((states @ normal - constant).abs() <= limit).all()):
                return FinalNorm(name, offset=abs(constant) > float(limit.mean()))
        return None


def bound_of(layer: OutputLayer, norm: FinalNorm | None, *, exact_norm: bool) -> Bound:
    """Return what algebra says of the rank of log P, and in words what a final LayerNorm makes of it.

    Args:
        layer: the output layer.
        norm: the LayerNorm before it.
        exact_norm: whether the norm's output is precise enough for its condition to hold in the measurement.
    """
    if layer.soft_cap is not None:
        return Bound(
            None, None, f"soft-capping at {layer.soft_cap:g} is a pointwise nonlinearity, which has no rank bound"
        )
    d, bias = layer.weight.shape[1], int(layer.bias is not None)
    why = f"log-probabilities are d = {d} hidden directions" + (", the output bias" if bias else "")
    why += " and the log-partition column; centring the rows removes the last"
    if norm is not None and exact_norm:
        raw, centered = reached(d, int(layer.bias is not None and bool(layer.bias.any())), norm)
        why += f"; hidden states come from a LayerNorm, so they lie in {d - 1} dimensions"
        why += " off the origin" if norm.offset else " through the origin"
        why += f", and the rank reaches {raw} raw and {centered} row-centred"
    elif norm is not None:
        why += "; hidden states come from a LayerNorm, whose one linear condition the body's rounding breaks"
    return Bound(d + 1 + bias, d + bias, why)


def reached(d: int, bias: int, norm: FinalNorm | None) -> tuple[int, int]:
    """Return the rank, raw and row-centred, that generic weights behind this norm reach; a bias of zeros is none.

    The columns of [H, 1] span d dimensions behind a LayerNorm: one fewer than d + 1, as a combination of H's columns
    is the constant β·v. It is 1 itself, so that a bias adds nothing, or zero, so that H has rank d − 1.
    """
    states = d if norm is None or norm.offset else d - 1
    beside = bias if norm is None or not norm.offset else 0
    return states + beside + 1, states + beside
