r"""The loss of a head against token ids or whole distributions, block by block, with its gradients from the same pass.

A mixture's loss needs only its K log-partition values, not the N × K × M tensor of its components:

.. math:: -\log P(y) = -\log \sum_k \exp(\log π_k + z_{k,y} - \log Z_k)

and, with the responsibilities :math:`r_k = P(k | y)` and component probabilities :math:`p_k`, the gradient in
the logits z of component k is :math:`r_k (p_k - 1_y)`. So each block of logits is computed once, overwritten by its
gradient, and released: three matrix products in all, and memory for a few blocks, independent of N.

The cross entropy :math:`-\sum_x P^*(x) \log P(x)` is computed likewise: the gradient in z is :math:`p - P^*` for one
softmax, and :math:`π_k p_k (s_k - P^*/P)` with :math:`s_k = \sum_x p_k(x) P^*(x) / P(x)` for component k of a mixture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.devices import sum_type
from ..errors import ConfigurationError
from .scores import Factors, Reduction, Scores, widest

BLOCK_BYTES = 16 << 20
"""Size of one block of logits: it stays in the cache between passes and is large enough for a fast matrix product."""
BLOCK_ROWS = 256
"""Fewest rows of logits in a block. W is read for each block: 384 rows save 3 to 5 % of the time, and take half as much
memory again."""
MIXTURE_BYTES = 2 << 20
"""Size of one block of a mixture's logits against distributions, where several passes need three such blocks."""
THIN = 32
"""Largest d for which products with logit gradients have the thin factor first, which is faster on a CPU."""
NEGLIGIBLE = 1e-30
"""Largest P* at which a mixture's P may underflow: its product with any float32 logarithm changes no loss."""
CONVERTED_ROWS = 2048
"""Rows of W's gradient that are converted to float32 at once on the CPU, where the products are in a narrower type."""
ROWS_ADDED = 16
"""Rows summed by one BLAS call on the CPU, which adds them one by one: few rows keep the rounding error small."""

Linear = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Contexts, weight and bias of `Factors`, or their gradients."""


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``backward`` raise an error under ``create_graph=True``, the one case where gradient mode is on inside it.

    Autograd sees a gradient computed in the forward pass as a constant: a second derivative would silently lack terms.
    Torch's ``once_differentiable`` raises only if the upstream gradient requires a gradient; that of a loss does not.
    """

    @wraps(backward)
    def checked(ctx: Any, *upstream: Any) -> Any:
        if torch.is_grad_enabled():
            raise ConfigurationError("a head's nll and PLIF have first derivatives only: leave out create_graph=True")
        return backward(ctx, *upstream)

    return checked


def blocked_loss(scores: Scores, targets: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Return the negative log-likelihood of token ids, or the cross entropy of distributions, in nats.

    Matrix products are computed in the type of the contexts, or in autocast's; all else in float32 or wider, sums over
    rows in float64 where the device has it. A target of probability 0 has the loss +∞ and a finite gradient: that of
    its components, each weighted by its prior.

    Args:
        scores: contexts (N, K, d) and log-prior (N, K).
        targets: int64, (N,), token ids; or float, (N, M), P*, each row summing to one. Subnormal numbers in P* slow the
            products down on a CPU: see `cleared`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` (N values); the mean of no row is NaN, as in torch.
    """
    # For a scalar loss the upstream gradient is one constant: gradients are computed in the forward pass.
    per_row = reduction == "none" or not torch.is_grad_enabled()
    layout = _Layout(scores.function, len(scores.factors), _product_type(scores.factors[0].contexts))
    result: Tensor = _BlockedNLL.apply(layout, per_row, targets, *layout.pack(scores))
    if per_row and reduction != "none":
        result = result.sum(dtype=sum_type(result.device))
    if reduction != "mean":
        return result
    return result / len(targets) if len(targets) else result + math.nan  # whose gradient is 0, as torch's is


class _Layout(NamedTuple):
    """The order of the parts in the flat list of tensors that autograd takes, and how they are processed."""

    function: nn.Module | None
    factors: int
    product_type: torch.dtype

    def pack(self, scores: Scores) -> list[Tensor | None]:
        parameters = [] if self.function is None else list(self.function.parameters())
        return [scores.log_prior, *(tensor for factors in scores.factors for tensor in factors), *parameters]

    def unpack(self, tensors: Sequence[Tensor | None]) -> tuple[Tensor | None, list[Linear], Sequence[Tensor | None]]:
        """Return log-prior, factors and parameters, or their gradients: ``None`` where one is absent or not needed."""
        end = 1 + 3 * self.factors
        factors = [(tensors[i], tensors[i + 1], tensors[i + 2]) for i in range(1, end, 3)]
        return tensors[0], factors, tensors[end:]


class _BlockedNLL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layout: _Layout, per_row: bool, targets: Tensor, *tensors: Tensor | None) -> Tensor:
        ctx.layout, ctx.per_row, needed = layout, per_row, ctx.needs_input_grad[3:]
        ctx.gradients = _zeros(tensors, needed) if any(needed) and not per_row else None
        ctx.save_for_backward(targets, *tensors)
        nll = _losses(layout, tensors, targets, None, ctx.gradients)
        return nll if per_row else nll.sum(dtype=sum_type(nll.device))

    @staticmethod
    @first_order
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # losses of rows, or a graph that was kept after its first backward pass
            targets, *tensors = ctx.saved_tensors
            gradients = _zeros(tensors, ctx.needs_input_grad[3:])
            _losses(ctx.layout, tensors, targets, upstream if ctx.per_row else None, gradients)
        if not ctx.per_row:  # in place, and given away: a copy of W's gradient is as large as W
            gradients = [None if g is None else g.mul_(upstream) for g in gradients]
        return (None, None, None, *gradients)


def _losses(
    layout: _Layout,
    tensors: Sequence[Tensor | None],
    targets: Tensor,
    upstream: Tensor | None,
    gradients: list[Tensor | None] | None,
) -> Tensor:
    """Return the loss of each row; add the gradients of ``Σ upstream · loss`` into ``gradients``."""
    whole_prior, wide_factors, parameters = layout.unpack(tensors)
    prior_into, factors_into, parameters_into = layout.unpack([None] * len(tensors) if gradients is None else gradients)
    factors = [_narrow(factors, layout.product_type) for factors in wide_factors]
    wide = widest(layout.product_type)
    losses = torch.empty(len(targets), dtype=wide, device=targets.device)
    with torch.autocast(targets.device.type, enabled=False):
        mixed = targets.is_floating_point() and whole_prior is not None
        blocks = _blocks(factors, wide, mixed=mixed)
        buffers = [_buffer(one, blocks, wide) for one in factors]
        # The backward pass needs a function's outputs and a mixture's logits; otherwise probabilities overwrite them.
        in_place = layout.function is None and not mixed
        spare = targets.new_empty(0) if in_place else torch.empty_like(buffers[0][1])
        for rows in blocks:
            log_prior = None if whole_prior is None else whole_prior[rows]
            products = [_logits(one, rows, buffer) for one, buffer in zip(factors, buffers, strict=True)]
            outputs = _apply(layout.function, products, keep=gradients is not None)
            values = outputs.detach()
            place = values if in_place else spare[: values.shape[0] * values.shape[1]].view_as(values)
            if targets.is_floating_point():
                scratch = values if mixed and layout.function is None else None
                block = _against_rows(values, log_prior, targets[rows].to(wide), place, scratch)
            else:
                block = _against_ids(values, log_prior, targets[rows], place)
            losses[rows] = block.loss
            if gradients is None:
                continue
            _, gradient, weights, prior_gradient = block
            if upstream is not None:
                scale = upstream[rows].unsqueeze(1)
                weights, prior_gradient = scale if weights is None else weights * scale, prior_gradient * scale
            if prior_into is not None:
                prior_into[rows] = prior_gradient
            if layout.function is None:
                logit_gradients, by_row = [gradient], weights
            else:
                if weights is not None:
                    gradient.mul_(weights.unsqueeze(2))
                pairs = list(zip(parameters, parameters_into, strict=True))
                logit_gradients, by_row = _through(outputs, products, gradient, pairs), None
                if targets.is_floating_point():
                    logit_gradients = [cleared(one) for one in logit_gradients]
            for one, totals, logit_gradient, (narrow, _) in zip(
                factors, factors_into, logit_gradients, buffers, strict=True
            ):
                _add_linear_gradients(totals, one, rows, logit_gradient, by_row, narrow)
    return losses


def _buffer(factors: Factors, blocks: Sequence[slice], wide: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return memory for a block's logits, (B · K, M), in the type of the products, and in float32 or wider.

    All blocks use it, because fresh memory costs as much as a pass over it. Both are one where the types are.
    """
    rows = blocks[0].stop if blocks else 0
    product = factors.contexts.new_empty(rows * factors.contexts.shape[1], factors.weight.shape[0])
    return product, product if product.dtype == wide else torch.empty_like(product, dtype=wide)


def _logits(factors: Factors, rows: slice, buffer: tuple[Tensor, Tensor]) -> Tensor:
    """Return the products (B, K, M) of a block of contexts in float32 or wider, in ``buffer``."""
    contexts, (narrow, wide) = factors.contexts[rows], buffer
    flat = contexts.reshape(-1, contexts.shape[2])
    products = narrow[: len(flat)]
    if factors.bias is None:
        torch.mm(flat, factors.weight.T, out=products)
    else:
        torch.addmm(factors.bias, flat, factors.weight.T, out=products)
    if wide is not narrow:
        products = wide[: len(flat)].copy_(products)
    return products.view(*contexts.shape[:2], -1)


def _apply(function: nn.Module | None, products: list[Tensor], *, keep: bool) -> Tensor:
    """Return the function of the products, with its autograd graph if ``keep``."""
    if function is None:
        return products[0]
    with torch.set_grad_enabled(keep):
        outputs: Tensor = function(*(product.requires_grad_(keep) for product in products))
    return outputs


def _through(
    outputs: Tensor, products: list[Tensor], gradient: Tensor, parameters: Sequence[tuple[Tensor | None, Tensor | None]]
) -> list[Tensor]:
    """Return the gradients in the products, and add each parameter's gradient to its sum."""
    learned = [(parameter, total) for parameter, total in parameters if parameter is not None and total is not None]
    gradients = torch.autograd.grad(outputs, [*products, *(parameter for parameter, _ in learned)], gradient)
    for (_, total), parameter_gradient in zip(learned, gradients[len(products) :], strict=True):
        total.add_(parameter_gradient)
    return list(gradients[: len(products)])


class _BlockLoss(NamedTuple):
    """Losses of a block of B contexts, and their gradients."""

    loss: Tensor
    """(B,)."""
    gradient: Tensor
    """Gradient in the logits, (B, K, M), before it is multiplied by ``weights``."""
    weights: Tensor | None
    """(B, K); ``None`` for ones."""
    prior_gradient: Tensor
    """Gradient in the log-prior, (B, K)."""


def _against_ids(logits: Tensor, log_prior: Tensor | None, targets: Tensor, place: Tensor) -> _BlockLoss:
    """Return the negative log-likelihood of the ids (B,), given logits (B, K, M); the gradient overwrites ``place``.

    The fused softmax kernel gives the probability of the largest logit, never below 1/M, so that its logarithm is
    accurate. From it follows log P(y) = (z_y − top) + log P(top) without a second pass over the block. The
    log-partition itself is not computed: at large logits its rounding error exceeds a small loss.
    """
    top = logits.amax(2)
    below_top = logits.gather(2, _at(targets, top)).squeeze(2) - top
    probability = _softmax(logits, place)
    by_component = below_top + torch.log(probability.amax(2))
    joint = by_component if log_prior is None else log_prior + by_component
    nll = -torch.logsumexp(joint, 1)
    prior = torch.ones_like(joint) if log_prior is None else torch.exp(log_prior).to(joint.dtype)
    responsibility = torch.where(nll.isposinf().unsqueeze(1), prior, torch.exp(joint + nll.unsqueeze(1)))
    gradient = probability.scatter_(2, _at(targets, responsibility), -1.0, reduce="add")
    return _BlockLoss(nll, gradient, responsibility, -responsibility)


def _against_rows(
    logits: Tensor, log_prior: Tensor | None, targets: Tensor, place: Tensor, scratch: Tensor | None
) -> _BlockLoss:
    """Return the cross entropy of the rows P* (B, M), given logits (B, K, M); the gradient overwrites ``place``.

    ``scratch`` is a buffer of the logits' shape, or the logits themselves if they may be overwritten.
    """
    truth = targets.unsqueeze(1)
    if log_prior is None:
        top, along = logits.amax(2), torch.linalg.vecdot(truth, logits)
        probability = cleared(_softmax(logits, place))
        loss = top - probability.amax(2).log() - along
        return _BlockLoss(loss.squeeze(1), probability.sub_(truth), None, -torch.ones_like(loss))
    components, prior = cleared(_softmax(logits, place)), log_prior.exp().to(logits.dtype)
    mixed = torch.bmm(prior.unsqueeze(1), components)
    smallest = torch.finfo(mixed.dtype).tiny
    if bool(mixed.amin() < smallest):
        if bool((truth[mixed < smallest] > NEGLIGIBLE).any()):
            return _in_log_space(logits, log_prior, truth, components)
        mixed.clamp_min_(smallest)
    loss = -torch.linalg.vecdot(truth, mixed.log()).squeeze(1)
    ratio = truth / mixed
    share = torch.mul(components, ratio, out=scratch).sum(2)
    gradient = components.mul_(torch.sub(share.unsqueeze(2), ratio, out=scratch))
    return _BlockLoss(loss, cleared(gradient), prior, -prior * share)


def _in_log_space(logits: Tensor, log_prior: Tensor, truth: Tensor, components: Tensor) -> _BlockLoss:
    """Return the cross entropy where P underflows and P* does not; several times slower."""
    joint = torch.log_softmax(logits, 2) + log_prior.unsqueeze(2)
    log_prob = torch.logsumexp(joint, 1, keepdim=True)
    taken = torch.exp(joint - log_prob) * truth
    share = taken.sum(2)
    gradient = cleared(components.mul_(share.unsqueeze(2)).sub_(taken))
    return _BlockLoss(-torch.linalg.vecdot(truth, log_prob).squeeze(1), gradient, torch.ones_like(share), -share)


def _softmax(logits: Tensor, place: Tensor) -> Tensor:
    """Return the softmaxes, on the CPU in ``place``. For other devices torch does not document a softmax in place."""
    return torch.softmax(logits, 2, out=place if place.device.type == "cpu" else None)


def cleared(numbers: Tensor) -> Tensor:
    """Set subnormal numbers to zero, in place: they are below the rounding error of any sum over a row.

    Confident models give many such probabilities, and products with them are many times slower on a CPU.
    """
    return torch.hardshrink(numbers, torch.finfo(numbers.dtype).tiny, out=numbers)


def _at(targets: Tensor, components: Tensor) -> Tensor:
    """Return the index (B, K, 1) of each component's logit of the target."""
    return targets.view(-1, 1, 1).expand(-1, components.shape[1], 1)


def _add_linear_gradients(
    into: Linear,
    factors: Factors,
    rows: slice,
    logit_gradient: Tensor,
    by_row: Tensor | None,
    narrow: Tensor,
) -> None:
    """Add the gradients of contexts, weight and bias from a block's logit gradient, each row times ``by_row``.

    The thin matrices are multiplied by ``by_row``, not the block, which saves a pass over it. ``narrow`` is a buffer
    for the gradient in the type of the matrix products.
    """
    contexts_gradient, weight_gradient, bias_gradient = into
    contexts = factors.contexts[rows].flatten(0, 1)
    flat = logit_gradient.flatten(0, 1)
    scale = flat.new_ones(len(flat), 1) if by_row is None else by_row.reshape(-1, 1)
    if bias_gradient is not None:
        bias_gradient.add_(_weighted_sum(flat, scale.squeeze(1)))
    if flat.dtype != narrow.dtype:
        flat = narrow[: len(flat)].copy_(flat)
    thin = factors.weight.shape[1] <= THIN
    if contexts_gradient is not None:
        product = (factors.weight.T.contiguous() @ flat.T).T if thin else flat @ factors.weight
        contexts_gradient[rows] = (scale * product).view_as(contexts_gradient[rows])
    if weight_gradient is not None:
        scaled = (scale * contexts).to(flat.dtype)
        if thin:
            weight_gradient.add_((scaled.T @ flat).T)
        elif weight_gradient.dtype == flat.dtype:
            weight_gradient.addmm_(flat.T, scaled)
        else:  # in parts that stay in the cache: torch converts a product to float32 before it adds it
            at_once = CONVERTED_ROWS if flat.device.type == "cpu" else flat.shape[1]
            for total, some in zip(weight_gradient.split(at_once), flat.split(at_once, 1), strict=True):
                total.add_(some.T @ scaled)


def _weighted_sum(rows: Tensor, weights: Tensor) -> Tensor:
    """Return Σ_i w_i a_i of the rows a_i, (n, M) → (M,).

    One matrix-vector product would add all rows one by one, with a rounding error that grows with their number.
    """
    together = ROWS_ADDED if rows.device.type == "cpu" else len(rows)
    sums = rows.new_empty(-(-len(rows) // together), rows.shape[1])
    for total, some, weight in zip(sums, rows.split(together), weights.split(together), strict=True):
        torch.mv(some.T, weight, out=total)
    return sums.sum(0)


def _blocks(factors: Sequence[Factors], wide: torch.dtype, *, mixed: bool = False) -> list[slice]:
    """Cut the contexts into blocks of the sizes above, with all components of a context in one block."""
    count, components, _ = factors[0].contexts.shape
    row = sum(one.contexts.shape[1] * one.weight.shape[0] for one in factors) * wide.itemsize
    rows = max(1, MIXTURE_BYTES // row if mixed else max(BLOCK_BYTES // row, BLOCK_ROWS // components))
    return [slice(start, min(start + rows, count)) for start in range(0, count, rows)]


def _narrow(factors: tuple[Tensor | None, ...], dtype: torch.dtype) -> Factors:
    contexts, weight, bias = (tensor if tensor is None else tensor.to(dtype) for tensor in factors)
    assert contexts is not None
    assert weight is not None
    return Factors(contexts, weight, bias)


def _product_type(contexts: Tensor) -> torch.dtype:
    """Return the type of the matrix products: autocast's where it is on, except for float64."""
    device = contexts.device.type
    if torch.is_autocast_enabled(device) and contexts.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return contexts.dtype


def _zeros(tensors: Sequence[Tensor | None], needed: Sequence[bool]) -> list[Tensor | None]:
    """Return zeros to which gradients are added, in float32 or wider."""
    return [
        torch.zeros(tensor.shape, dtype=widest(tensor.dtype), device=tensor.device)
        if tensor is not None and is_needed
        else None
        for tensor, is_needed in zip(tensors, needed, strict=True)
    ]
