r"""Cross entropy of a head against whole distributions, with its gradients from the same pass.

A block of logits z is made once and turned into its own gradient in place: that of
:math:`-\sum_x P^*(x) \log Q(x)` is :math:`Q - P^*` for a softmax, and :math:`π_k Q_k (s_k - P^*/Q)` with
:math:`s_k = \sum_x Q_k(x) P^*(x) / Q(x)` for the components of a mixture, which takes one exponential each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from ..heads import Factors, Head
from ..heads.scores import Scores, log_prob
from .targets import cleared

COMPONENT_ENTRIES = 1 << 19
"""Component probabilities of a mixture that are held at a time."""
NEGLIGIBLE = 1e-30
"""Times any logarithm of a float32 this is nothing beside a loss: where P* is less, Q may underflow."""


def cross_entropy_backward(head: Head, hidden: Tensor, targets: Tensor) -> Tensor:
    r"""Return :math:`H(P^*, Q)` of each row, and add the gradients of their sum to those of the parameters.

    Matrix products are written with the thin factor on the left, which is two to four times as fast on a CPU.

    Args:
        head: any head; those whose logits come from one product have analytic gradients.
        hidden: float, (n, hidden_size); gets its gradient when it requires one.
        targets: float, (n, M), P*, each row summing to one.

    Returns:
        (n,), nats.
    """
    scores = head.scores(hidden)
    if len(scores.factors) > 1:
        loss = _in_log_space(scores, targets)
        loss.sum().backward()
        return loss.detach()
    (factors,) = scores.factors
    inputs = [factors.contexts, factors.weight, factors.bias, scores.log_prior]
    if scores.log_prior is None:
        loss, gradients = _softmax(factors, scores.function, targets)
    else:
        loss, gradients = _mixture(factors, scores.log_prior, scores.function, targets)
    wanted = [
        (tensor, gradient)
        for tensor, gradient in zip(inputs, gradients, strict=True)
        if tensor is not None and tensor.requires_grad
    ]
    torch.autograd.backward([tensor for tensor, _ in wanted], [gradient for _, gradient in wanted])
    return loss


def gradient_norm(parameters: Iterable[Tensor]) -> float:
    """Return the Euclidean norm of all gradients together, those that were not made counting as zero."""
    norms = [parameter.grad.norm() for parameter in parameters if parameter.grad is not None]
    return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0


Gradients = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""In contexts, weight, bias and log-priors."""


def _softmax(factors: Factors, function: nn.Module | None, targets: Tensor) -> tuple[Tensor, Gradients]:
    h = factors.contexts.detach().squeeze(-2)
    logits = _logits(h, factors)
    bent = logits if function is None else function(logits.requires_grad_().unsqueeze(1)).squeeze(1)
    values = bent.detach()
    Q = cleared(torch.softmax(values, 1))
    # The largest probability is at least 1/M, so log Z = max z − log max Q keeps its digits.
    log_partition = values.amax(1) - Q.amax(1).log()
    loss = log_partition - torch.linalg.vecdot(targets, values)
    gradient = Q.sub_(targets)
    if function is not None:
        gradient = _through(function, bent, logits, gradient)
    contexts, weight, bias = _linear(h, factors, gradient)
    return loss, (contexts.unsqueeze(-2), weight, bias, None)


def _mixture(
    factors: Factors, log_prior: Tensor, function: nn.Module | None, targets: Tensor
) -> tuple[Tensor, Gradients]:
    """Take as many rows at a time as their components fit, all in the same memory: new pages would cost two passes."""
    K = log_prior.shape[1]
    rows = max(1, COMPONENT_ENTRIES // (K * len(factors.weight)))
    shape = min(rows, len(targets)), K, len(factors.weight)
    rooms = targets.new_empty(shape), targets.new_empty(shape)  # two: autograd counts the changes of each by itself
    pieces = zip(factors.contexts.split(rows), log_prior.split(rows), targets.split(rows), strict=True)
    found = [
        _mixture_rows(factors._replace(contexts=contexts.detach()), prior.detach(), function, wanted, rooms)
        for contexts, prior, wanted in pieces
    ]
    losses, gradients = zip(*found, strict=True)
    contexts, weight, bias, priors = zip(*gradients, strict=True)
    total = sum(bias[1:], bias[0]) if factors.bias is not None else None
    return torch.cat(losses), (torch.cat(contexts), sum(weight[1:], weight[0]), total, torch.cat(priors))


def _mixture_rows(
    factors: Factors, log_prior: Tensor, function: nn.Module | None, targets: Tensor, rooms: tuple[Tensor, Tensor]
) -> tuple[Tensor, Gradients]:
    n, K = log_prior.shape
    h, prior = factors.contexts.reshape(n * K, -1), log_prior.exp()
    place, room = (whole[:n] for whole in rooms)
    logits = _logits(h, factors, place.view(n * K, -1)).view(n, K, -1)
    bent = logits if function is None else function(logits.requires_grad_())
    components = cleared(torch.softmax(bent.detach(), 2, out=place if function is None else None))
    Q = torch.bmm(prior.unsqueeze(1), components).squeeze(1)
    smallest = torch.finfo(Q.dtype).tiny
    if bool(Q.amin() < smallest):
        if bool((targets[smallest > Q] > NEGLIGIBLE).any()):
            return _mixture_in_log_space(factors, log_prior, function, targets)
        Q.clamp_min_(smallest)
    loss = -torch.linalg.vecdot(targets, Q.log())
    ratio = targets / Q
    s = torch.mul(components, ratio.unsqueeze(1), out=room).sum(2)
    gradient = cleared(components.mul_(torch.sub(s.unsqueeze(2), ratio.unsqueeze(1), out=room)))
    # The factor π still missing scales rows: without a function between, it may as well scale the thin matrices.
    weights: Tensor | None = prior.view(-1, 1)
    if function is not None:
        gradient, weights = _through(function, bent, logits, gradient.mul_(prior.unsqueeze(2))), None
    contexts, weight, bias = _linear(h, factors, gradient.view(n * K, -1), weights)
    return loss, (contexts.view(n, K, -1), weight, bias, -prior * s)


def _mixture_in_log_space(
    factors: Factors, log_prior: Tensor, function: nn.Module | None, targets: Tensor
) -> tuple[Tensor, Gradients]:
    """Do the same for rows with a Q that underflows where it matters, at a multiple of the time."""
    weight = factors.weight.detach().requires_grad_()
    bias = None if factors.bias is None else factors.bias.detach().requires_grad_()
    leaves = Factors(factors.contexts.requires_grad_(), weight, bias)
    loss = _in_log_space(Scores((leaves,), log_prior.requires_grad_(), function), targets)
    inputs = [leaves.contexts, weight, log_prior, *([] if bias is None else [bias])]
    parameters = _parameters(function)
    found = torch.autograd.grad(loss.sum(), [*inputs, *parameters])
    _add(parameters, found[len(inputs) :])
    return loss.detach(), (found[0], found[1], None if bias is None else found[3], found[2])


def _in_log_space(scores: Scores, targets: Tensor) -> Tensor:
    return -(targets * log_prob(scores)).sum(1)


def _logits(contexts: Tensor, factors: Factors, place: Tensor | None = None) -> Tensor:
    W, b = factors.weight.detach(), factors.bias
    return torch.mm(contexts, W.T, out=place) if b is None else torch.addmm(b.detach(), contexts, W.T, out=place)


def _linear(
    contexts: Tensor, factors: Factors, gradient: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Carry the gradient of ``contexts @ W.T + b``, each row times its weight, to contexts, W and b."""
    W = factors.weight.detach()
    own = (W.T.contiguous() @ gradient.T).T
    weighted = contexts if weights is None else contexts * weights
    bias = None
    if factors.bias is not None:
        bias = gradient.sum(0) if weights is None else gradient.T @ weights.squeeze(1)
    return own if weights is None else own * weights, (weighted.T @ gradient).T, bias


def _through(function: nn.Module, bent: Tensor, logits: Tensor, gradient: Tensor) -> Tensor:
    """Carry a gradient back through a function of the logits; its parameters get their part."""
    parameters = _parameters(function)
    own, *others = torch.autograd.grad(bent, [logits, *parameters], gradient.view_as(bent))
    _add(parameters, others)
    return cleared(own)


def _parameters(function: nn.Module | None) -> list[nn.Parameter]:
    return [] if function is None else [parameter for parameter in function.parameters() if parameter.requires_grad]


def _add(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
