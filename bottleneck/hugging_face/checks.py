"""What is checked of a model before it is measured: that it computes W·h + b, and that it does not look ahead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import heads
from ..core.devices import exact
from ..core.full_precision import alone, full_precision
from ..errors import SourceError
from ..heads import Head, RankBound, Softmax
from ..language_models.checked_product import (
    ROUNDINGS,
    THROUGH_A_FUNCTION,
    WITHOUT_LOGITS,
    check_layer,
    check_product,
    distance,
    weight_of,
)
from ..language_models.layer import masked_bias
from ..spectrum import EPS
from .headed import OutputLayer
from .loading import Loadable, output_layer, run

SCALES = ("logit_scale", "lm_head_multiplier", "logits_scaling")
"""Configuration keys of a factor on the logits (Cohere's, Falcon-H1's, HyperCLOVA X's) or of one they are divided by
(Granite's), or of one that comes before the output layer (MiniCPM's): the model's own logits tell."""
SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
"""Configuration keys of the largest logit c in c tanh(z / c): those of Gemma, RecurrentGemma and xLSTM."""
AFTERWARDS = 8
"""Largest number of times that a logit is rounded after the output layer, by a scale, a cap and its tanh, in both
computations."""
ROUTED = 1e-4
"""Relative change of hidden states that the roundoff of a deep mixture of experts may cause; in an untrained encoder,
later tokens changed them by 2 · 10⁻³."""
NORM_ROUNDINGS = 4
"""Largest number of times that a LayerNorm rounds a coordinate."""


@dataclass(frozen=True)
class FinalNorm:
    """A LayerNorm right before the output layer: for v = 1/γ and every hidden state, h·v is one constant."""

    name: str
    offset: bool
    """Whether the constant β·v is not zero; if so, all hidden states lie in an affine space without the origin."""


@dataclass(frozen=True)
class CheckedHead:
    """The head of a model, and what a sample of contexts says of it."""

    head: Head
    difference: float
    """The largest difference between its logits, or log-probabilities, and the model's own."""
    norm: FinalNorm | None
    """The LayerNorm before a softmax of the hidden states themselves, if there is one."""


class Sample(NamedTuple):
    """The outputs of a model with a linear output layer; all but the hidden states are those of the first text."""

    hidden: Tensor
    """(B, L, d), the input of the output layer."""
    product: Tensor
    """(L, M), the output of the output layer."""
    probe: Tensor
    """(L, M), different numbers for all contexts and tokens, which took the place of the product."""
    logits: Tensor
    """(L, M), what the model makes of `probe`."""
    outputs: Any
    """All outputs of the model."""


def unloaded_head(module: Any, dtype: torch.dtype) -> Head:
    """Return the head of a model for its sizes, without weights, in a type."""
    layer = output_layer(module)
    if isinstance(layer, OutputLayer):
        with torch.device("meta"):
            return heads.build(module.spec["head"], **module.spec["settings"]).to(dtype).eval()
    sizes = layer.out_features, layer.in_features
    weight = torch.empty(*sizes, device="meta", dtype=dtype)
    bias = None if layer.bias is None else torch.empty(sizes[0], device="meta", dtype=dtype)
    return Softmax.of(weight, bias, scale=_scales(module.config)[0], soft_cap=_soft_cap(module.config))


@alone()
def check_head(model: Loadable, ids: Tensor, dtype: torch.dtype) -> CheckedHead:
    """Return the head with its weights in full precision, after one forward pass for ids (L,) that checks the model.

    Raises:
        SourceError: for logits that are not finite, or not those of the output layer, or a model that looks ahead.
    """
    body, eps = model.body, EPS[model.body_type]
    layer = output_layer(body)
    cuts = sorted({len(ids) - 1, len(ids) // 2} - {0})
    batch = ids.repeat(1 + len(cuts), 1)
    for row, cut in enumerate(cuts, 1):  # the last token, or the second half, is another
        batch[row, cut:] = (ids[cut:] + 1) % model.input_size
    with last_norm(body) as norm:
        if isinstance(layer, nn.Linear):
            outputs = sample(body, batch)
            hidden = outputs.hidden
        else:
            hidden, _ = run(body, batch, pass_on=lambda states: states[:1, :1])
    _check_causal(model, hidden, cuts)
    if isinstance(layer, nn.Linear):
        softmax, difference = softmax_of(layer, outputs, body.config, dtype, model.name)
        return CheckedHead(softmax, difference, _final_norm(norm, hidden, eps))
    head: Head = deepcopy(layer.head).to(dtype).eval().requires_grad_(False)
    with torch.no_grad(), full_precision():
        exact, computed = head.log_prob(hidden[0].to(dtype)), layer.head.log_prob(hidden[0]).to(dtype)
    if bool(exact.isnan().any()):
        raise SourceError(
            f"the log-probabilities of {model.name} are not numbers: its weights are damaged; train it again"
        )
    is_softmax = isinstance(head, Softmax) and head.contexts is None
    before = _final_norm(norm, hidden, eps, scale=layer.scale) if is_softmax else None
    return CheckedHead(head, float(distance(exact, computed).max()), before)


@contextmanager
def last_norm(body: nn.Module) -> Iterator[list[Any]]:
    """Yield a list that holds the name, the module and the output of the last norm that has run."""
    norm: list[Any] = [None, None, None]

    def note(name: str, part: nn.Module, _: Any, output: Any) -> None:
        norm[:] = name, part, output

    with ExitStack() as stack:
        for name, part in body.named_modules():
            if "norm" in type(part).__name__.lower():
                stack.enter_context(part.register_forward_hook(partial(note, name)))
        yield norm


def sample(module: Any, batch: Tensor, **more: Tensor) -> Sample:
    """Return the outputs of a model with a linear output layer for ids (B, L), and ``more`` arguments of the model."""
    products: list[Tensor] = []
    probes: list[Tensor] = []

    def replace_product(_: nn.Module, __: Any, product: Tensor) -> Tensor:
        numbers = torch.arange(product.numel(), device=product.device).view(product.shape)
        # Up to ±100: above the soft caps in use, and safe in float16.
        probe = ((numbers * 7919 % 2001 - 1000) / 10).to(torch.promote_types(product.dtype, torch.float32))
        products.append(product)
        probes.append(probe)
        return probe.clone()  # some models change it in place

    with output_layer(module).register_forward_hook(replace_product):
        hidden, outputs = run(module, batch, pass_on=lambda states: states[:1], **more)
    if getattr(outputs, "logits", None) is None:
        raise SourceError(f"the output of {type(module).__name__} has no logits: {WITHOUT_LOGITS}")
    return Sample(hidden, products[0][0], probes[0][0], outputs.logits[0], outputs)


def softmax_of(layer: nn.Linear, outputs: Sample, config: Any, dtype: torch.dtype, name: str) -> tuple[Softmax, float]:
    """Return the softmax that a sample of logits is of, and its largest difference from them."""
    weight = weight_of(layer, name).to(dtype)
    bias = None if layer.bias is None else layer.bias.detach().to(dtype)
    exact = check_product(weight, bias, outputs.hidden[0], outputs.product, name)
    check_layer(layer, outputs.hidden[0], name)
    if outputs.logits.shape != outputs.product.shape:
        raise SourceError(
            f"{name} keeps {outputs.logits.shape[-1]:,} of the {outputs.product.shape[-1]:,} logits of its output "
            f"layer: it cannot be taken apart; {THROUGH_A_FUNCTION}"
        )
    soft_cap, differences = _soft_cap(config), []
    eps = max(torch.finfo(of.dtype).eps for of in (outputs.probe, outputs.logits))
    for scale in _scales(config):
        expected = _after_product(outputs.probe, scale, soft_cap)
        off = distance(expected, outputs.logits)
        if not bool((off <= AFTERWARDS * eps * expected.abs()).all()):
            differences.append(float(off.max()))
            continue
        bias_or_mask = None if bias is None else masked_bias(bias, scale=scale)
        off = distance(*(_after_product(each.to(exact), scale, soft_cap) for each in (exact, outputs.product)))
        if bias_or_mask is not None:
            off = off[:, bias_or_mask > -torch.inf]
        return Softmax.of(weight, bias_or_mask, scale=scale, soft_cap=soft_cap), float(off.max())
    raise SourceError(
        f"the logits of {name} are not those of its output layer as its configuration describes it: they differ by up "
        f"to {min(differences):.3g}, more than roundoff explains; {THROUGH_A_FUNCTION}"
    )


def _after_product(product: Tensor, scale: float, soft_cap: float | None) -> Tensor:
    """Return the logits for a product W h + b, in its type."""
    logits = product * scale
    return logits if soft_cap is None else torch.tanh(logits / soft_cap) * soft_cap


def _scales(config: Any) -> list[float]:
    """Return the possible factors on the output of the linear layer, from the configuration."""
    scale = 1.0
    for value in _values(config, SCALES):
        scale *= value
    return list(dict.fromkeys([scale, 1 / scale, 1.0]))


def _soft_cap(config: Any) -> float | None:
    return next(iter(_values(config, SOFT_CAPS)), None)


def _values(config: Any, names: tuple[str, ...]) -> list[float]:
    values = (getattr(config.get_text_config(), name, None) for name in names)
    return [float(value) for value in values if isinstance(value, int | float) and value]


def _check_causal(model: Loadable, hidden: Tensor, cuts: list[int]) -> None:
    """Refuse a model whose hidden states (B, L, d) change with the tokens from a cut on, in all rows but the first."""
    # Experts' products, which take other rows together then, add up in another order: that is roundoff alone.
    limit = max(ROUNDINGS * EPS[model.body_type], ROUTED)
    for cut, changed in zip(cuts, hidden[1:], strict=True):
        before, after = exact(hidden[0, :cut]), exact(changed[:cut])
        if float((before - after).norm()) > limit * float(before.norm()):
            remedy = ""
            if getattr(model.module.config, "is_decoder", None) is False:
                remedy = "; if it was trained as one, set is_decoder to true in its configuration"
            raise SourceError(
                f"{model.name} looks ahead: its hidden states change with the tokens after them; only causal "
                f"(decoder-only) language models can be measured{remedy}"
            )


def _final_norm(norm: list[Any], hidden: Tensor, eps: float, *, scale: float = 1.0) -> FinalNorm | None:
    r"""Return the LayerNorm whose output, times ``scale``, the head is given, (B, L, d); ``None`` for another norm.

    It computes :math:`h = γ ⊙ \hat x + β` with :math:`\hat x · 1 = 0`, so :math:`h·γ^{-1} = β·γ^{-1}`. This linear
    condition on all hidden states is tested on their values, because module names differ between models.
    """
    name, module, output = norm
    if not isinstance(output, Tensor) or output.numel() != hidden.numel():
        return None
    output = output.reshape(hidden.shape)
    if not torch.equal(output if scale == 1 else output * scale, hidden):
        return None
    with full_precision():
        states = exact(output[0])
        gain, shift = getattr(module, "weight", None), getattr(module, "bias", None)
        gain = torch.ones_like(states[0]) if gain is None else exact(gain.detach())
        shift = torch.zeros_like(states[0]) if shift is None else exact(shift.detach())
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


def bound_of(checked: CheckedHead, *, exact_norm: bool) -> RankBound:
    """Return the largest rank of the head behind the LayerNorm before it.

    After a LayerNorm the columns of [H, 1] span d dimensions instead of d + 1, because a combination of H's columns is
    the constant β·v. If it is not zero, a bias adds no dimension; if it is zero, H has rank d − 1. ``exact_norm`` says
    whether the norm's output is precise enough for its condition to hold in the measurement.
    """
    head, norm = checked.head, checked.norm
    bound, d = head.rank_bound, head.embedding_size
    if norm is None or bound.raw is None:
        return bound
    has_bias = head.bias is not None and bool(head.bias.any())  # a bias of zeros counts as no bias
    centered = d if norm.offset else d - 1 + int(has_bias)
    if not exact_norm:
        why = "hidden states come from a LayerNorm, whose one linear condition the body's rounding breaks"
        return replace(bound, why=f"{bound.why}; {why}")
    why = (
        f"{bound.why}; but hidden states come from a LayerNorm, so they lie in {d - 1} dimensions "
        f"{'off' if norm.offset else 'through'} the origin"
    )
    return RankBound(centered + 1, centered, why)
