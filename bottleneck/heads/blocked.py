r"""The negative log-likelihood of a head, block by block, with its gradients from the same pass.

A mixture's loss needs only its K log-partition values, not the N × K × M tensor of its components:

.. math:: -\log P(y) = -\log \sum_k \exp(\log π_k + h_k·w_y + b_y - \log Z_k)

and, with the responsibilities :math:`r_k = P(k | y)` and component probabilities :math:`p_k`, the gradient in
the logits of component k is :math:`r_k (p_k - 1_y)`. So each block of logits is made once, turned into its
own gradient in place, and dropped: three matrix products in all, and no more than a few blocks in memory, however
long the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .base import Reduction
from .first_order import first_order

BLOCK_BYTES = 8 << 20
"""One block of logits: it stays in cache between the passes over it and still fills a matrix product."""


def mixture_nll(
    contexts: Tensor,
    log_prior: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    reduction: Reduction = "mean",
    block_bytes: int = BLOCK_BYTES,
) -> Tensor:
    """Return the negative log-likelihood of a mixture of softmaxes (MoS paper §2.4), in nats.

    Args:
        contexts: float, (N, K, d); K = 1 is a plain softmax.
        log_prior: float, (N, K), log mixture weights, normalized.
        weight: float, (M, d).
        bias: float, (M,) or ``None``.
        targets: int64, (N,).
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` (N values).
        block_bytes: memory for one block of logits.
    """
    per_row = _per_row(reduction)
    result = _MixtureNLL.apply(contexts, log_prior, weight, bias, targets, per_row, block_bytes)
    return _reduce(result, targets, reduction, per_row)


def pointwise_nll(
    contexts: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    function: nn.Module,
    *,
    reduction: Reduction = "mean",
    block_bytes: int = BLOCK_BYTES,
) -> Tensor:
    """Return the negative log-likelihood of ``softmax(function(logits))`` (LMS paper eq. 12), in nats.

    ``function`` acts on each logit alone and may have parameters, which receive their gradients. The other
    arguments are those of `mixture_nll`, with ``contexts`` (N, d).
    """
    per_row = _per_row(reduction)
    result = _PointwiseNLL.apply(
        contexts, weight, bias, targets, function, per_row, block_bytes, *function.parameters()
    )
    return _reduce(result, targets, reduction, per_row)


def _per_row(reduction: Reduction) -> bool:
    """Return whether gradients wait for the backward pass, if one comes: a scalar's are made at once, weights known."""
    return reduction == "none" or not torch.is_grad_enabled()


def _reduce(result: Tensor, targets: Tensor, reduction: Reduction, per_row: bool) -> Tensor:
    total = result.sum() if per_row and reduction != "none" else result
    return total / targets.numel() if reduction == "mean" else total


class _MixtureNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        contexts: Tensor,
        log_prior: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        per_row: bool,
        block_bytes: int,
    ) -> Tensor:
        inputs = (contexts, log_prior, weight, bias)
        ctx.per_row, ctx.block_bytes = per_row, block_bytes
        wanted = any(ctx.needs_input_grad[:4])
        gradients = _zeros_like(inputs) if wanted and not per_row else None
        nll = _mixture_pass(inputs, targets, None, gradients, block_bytes)
        if per_row:
            ctx.save_for_backward(*inputs, targets)
            return nll
        if gradients is not None:
            ctx.save_for_backward(*gradients)
        return nll.sum()

    @staticmethod
    @first_order
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.per_row:
            *inputs, targets = ctx.saved_tensors
            gradients = _zeros_like(inputs)
            _mixture_pass(inputs, targets, upstream, gradients, ctx.block_bytes)
        else:
            gradients = [None if g is None else g * upstream for g in ctx.saved_tensors]
        return (*gradients, None, None, None)


class _PointwiseNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        contexts: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        function: nn.Module,
        per_row: bool,
        block_bytes: int,
        *parameters: Tensor,
    ) -> Tensor:
        inputs = (contexts, weight, bias)
        ctx.function, ctx.per_row, ctx.block_bytes, ctx.parameters = (
            function,
            per_row,
            block_bytes,
            parameters,
        )
        wanted = any(ctx.needs_input_grad)
        gradients = _zeros_like((*inputs, *parameters)) if wanted and not per_row else None
        nll = _pointwise_pass(inputs, targets, function, parameters, None, gradients, block_bytes)
        if per_row:
            ctx.save_for_backward(*inputs, targets)
            return nll
        if gradients is not None:
            ctx.save_for_backward(*gradients)
        return nll.sum()

    @staticmethod
    @first_order
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.per_row:
            *inputs, targets = ctx.saved_tensors
            gradients = _zeros_like((*inputs, *ctx.parameters))
            _pointwise_pass(inputs, targets, ctx.function, ctx.parameters, upstream, gradients, ctx.block_bytes)
        else:
            gradients = [None if g is None else g * upstream for g in ctx.saved_tensors]
        return (*gradients[:3], None, None, None, None, *gradients[3:])


def _mixture_pass(
    inputs: Any,
    targets: Tensor,
    upstream: Tensor | None,
    gradients: list[Tensor | None] | None,
    block_bytes: int,
) -> Tensor:
    """Return the nll of each row; add the gradients of ``Σ upstream · nll`` into ``gradients``."""
    contexts, log_prior, weight, bias = inputs
    count, components, _ = contexts.shape
    nll = contexts.new_empty(count)
    for rows in _blocks(count, components * weight.shape[0] * contexts.element_size(), block_bytes):
        flat = contexts[rows].reshape(-1, contexts.shape[2])
        logits = _logits(flat, weight, bias)
        index = targets[rows].view(-1, 1, 1).expand(-1, components, 1)
        by_component = (-1, components, weight.shape[0])
        target_logit = logits.view(by_component).gather(2, index).squeeze(2)
        probability, top, log_top = _normalize(logits)
        joint = log_prior[rows] + ((target_logit - top.view_as(target_logit)) + log_top.view_as(target_logit))
        nll[rows] = -torch.logsumexp(joint, 1)
        if gradients is None:
            continue
        responsibility = torch.exp(joint + nll[rows].unsqueeze(1))
        if upstream is not None:
            responsibility = responsibility * upstream[rows].unsqueeze(1)
        probability.mul_(responsibility.reshape(-1, 1))
        probability.view(by_component).scatter_add_(2, index, -responsibility.unsqueeze(2))
        _add_linear_gradients(gradients[0], gradients[2], gradients[3], rows, flat, weight, probability)
        prior_gradient = gradients[1]
        assert prior_gradient is not None
        prior_gradient[rows] = -responsibility
    return nll


def _pointwise_pass(
    inputs: Any,
    targets: Tensor,
    function: Callable[[Tensor], Tensor],
    parameters: tuple[Tensor, ...],
    upstream: Tensor | None,
    gradients: list[Tensor | None] | None,
    block_bytes: int,
) -> Tensor:
    """Return the nll of each row; add the gradients of ``Σ upstream · nll`` into ``gradients``."""
    contexts, weight, bias = inputs
    nll = contexts.new_empty(contexts.shape[0])
    for rows in _blocks(contexts.shape[0], weight.shape[0] * contexts.element_size(), block_bytes):
        logits = _logits(contexts[rows], weight, bias)
        index = targets[rows].unsqueeze(1)
        with torch.set_grad_enabled(gradients is not None):
            logits.requires_grad_(gradients is not None)
            bent = function(logits)
        values = bent.detach()
        target_value = values.gather(1, index).squeeze(1)
        probability, top, log_top = _normalize(values)
        nll[rows] = (top - target_value) - log_top
        if gradients is None:
            continue
        probability.scatter_add_(1, index, -torch.ones_like(target_value).unsqueeze(1))
        if upstream is not None:
            probability.mul_(upstream[rows].unsqueeze(1))
        variable = [p for p in parameters if p.requires_grad]
        logit_gradient, *own = torch.autograd.grad(bent, [logits, *variable], probability)
        _add_linear_gradients(gradients[0], gradients[1], gradients[2], rows, contexts[rows], weight, logit_gradient)
        remaining = iter(own)
        for total, parameter in zip(gradients[3:], parameters, strict=True):
            if parameter.requires_grad and total is not None:
                total.add_(next(remaining))
    return nll


def _logits(contexts: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return contexts @ weight.T if bias is None else torch.addmm(bias, contexts, weight.T)


def _normalize(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return, by rows, softmax(logits), the largest logit, and that one's log-probability.

    The fused softmax kernel gives the probability of the largest logit (never below 1/M, so its logarithm is
    accurate), and with it log P(y) = (z_y − top) + log P(top) without a second pass over the block. The
    log-partition itself is never made: at large logits its rounding would swallow a small loss.
    """
    top, index = logits.max(1)
    probability = torch.softmax(logits, 1)
    return probability, top, torch.log(probability.gather(1, index.unsqueeze(1)).squeeze(1))


def _add_linear_gradients(
    contexts_gradient: Tensor | None,
    weight_gradient: Tensor | None,
    bias_gradient: Tensor | None,
    rows: slice,
    contexts: Tensor,
    weight: Tensor,
    logit_gradient: Tensor,
) -> None:
    """Carry a block's logit gradient back through ``contexts @ weight.T + bias``."""
    assert contexts_gradient is not None
    assert weight_gradient is not None
    contexts_gradient[rows] = (logit_gradient @ weight).view_as(contexts_gradient[rows])
    weight_gradient.addmm_(logit_gradient.T, contexts)
    if bias_gradient is not None:
        bias_gradient.add_(logit_gradient.sum(0))


def _blocks(count: int, bytes_per_row: int, block_bytes: int) -> Iterator[slice]:
    rows = max(1, block_bytes // bytes_per_row)
    for start in range(0, count, rows):
        yield slice(start, min(start + rows, count))


def _zeros_like(tensors: Any) -> list[Tensor | None]:
    return [None if t is None else torch.zeros_like(t, memory_format=torch.contiguous_format) for t in tensors]
