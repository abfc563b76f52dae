"""Targets that do not count, that cannot be, and that have no probability."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head

Make = Callable[..., Head]
EPS = torch.finfo(torch.float64).eps
every_head = pytest.mark.parametrize("name", heads.REGISTRY)
every_masked = pytest.mark.parametrize(
    ("name", "settings"),
    [*((name, {}) for name in heads.REGISTRY if name != "lms-net"), ("gss", {"k": 1.0}), ("gss", {"k": 0.5})],
)


@every_head
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ignored_targets_are_as_if_they_were_not_there(name: str, reduction: Any, make: Make) -> None:
    head, hidden = make(name), torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(7, (3, 4))
    targets[0, 1] = targets[2, 3] = targets[2, 0] = -100
    counted = targets != -100
    found = head.nll(hidden, targets, reduction=reduction, ignore_index=-100)
    alone = head.nll(hidden[counted], targets[counted], reduction=reduction)
    torch.testing.assert_close(found[counted] if reduction == "none" else found, alone, rtol=10 * EPS, atol=0)
    learned = [hidden, *head.parameters()]
    ours, theirs = (torch.autograd.grad(loss.sum(), learned, retain_graph=True) for loss in (found, alone))
    torch.testing.assert_close(ours, theirs, rtol=100 * EPS, atol=10 * EPS)
    assert not ours[0][~counted].any()
    if reduction == "none":
        assert not found[~counted].any()


@every_head
@pytest.mark.parametrize("ignored", [True, False])
def test_no_targets_at_all(name: str, ignored: bool, make: Make) -> None:
    """As torch has it: the mean of nothing is NaN, its sum 0; gradients of both are 0."""
    count = 3 if ignored else 0
    head, hidden = make(name), torch.randn(count, 5, dtype=torch.float64, requires_grad=True)
    targets, ignore = torch.full((count,), -100), -100 if ignored else None
    mean = head.nll(hidden, targets, ignore_index=ignore)
    assert mean.isnan()
    assert head.nll(hidden, targets, reduction="none", ignore_index=ignore).tolist() == [0.0] * count
    total = head.nll(hidden, targets, reduction="sum", ignore_index=ignore)
    assert total.item() == 0
    for loss in (mean, total):
        for gradient in torch.autograd.grad(loss, [hidden, *head.parameters()]):
            assert not gradient.any()


@every_masked
@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_a_target_of_probability_zero(name: str, settings: dict[str, Any], reduction: Any, make: Make) -> None:
    """A token masked by a bias of −∞: its loss is +∞; other rows and all gradients stay finite."""
    head, hidden = _masked(make(name, **settings)), torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 2, 4, 1, 2, 3])
    assert (head.log_prob(hidden)[:, 2] == -math.inf).all()
    loss = head.nll(hidden, targets, reduction=reduction)
    assert loss.isinf().tolist() == ([y == 2 for y in targets.tolist()] if reduction == "none" else True)
    gradients = torch.autograd.grad(loss.sum(), [hidden, *head.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)
    possible = targets != 2
    alone = torch.autograd.grad(head.nll(hidden[possible], targets[possible], reduction="sum"), hidden)[0]
    torch.testing.assert_close(gradients[0][possible], alone[possible], rtol=100 * EPS, atol=10 * EPS)


@every_masked
@pytest.mark.parametrize("through", ["nll", "log_prob"])
def test_a_masked_token_is_as_if_it_were_not_there(name: str, settings: Any, through: str, make: Make) -> None:
    """Values and gradients are those of the head without the token; the gradients of the token's parameters are 0."""
    head, without = _masked(make(name, **settings)), make(name, **settings, vocab=6)
    without.load_state_dict({key: _without_token(tensor) for key, tensor in head.state_dict().items()})
    hidden = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 5, 4, 1, 6, 3])
    outcomes = []
    for each, ids in ((head, targets), (without, targets - (targets > 2).long())):
        loss = each.nll(hidden, ids) if through == "nll" else -each.log_prob(hidden).gather(1, ids[:, None]).mean()
        outcomes.append([loss, *torch.autograd.grad(loss, [hidden, *each.parameters()])])
    ours, theirs = outcomes
    for own in ours[2:]:
        assert 7 not in own.shape or not own.select(own.shape.index(7), 2).any()
    ours = [ours[0], ours[1], *map(_without_token, ours[2:])]
    torch.testing.assert_close(ours, theirs, rtol=100 * EPS, atol=10 * EPS)


def _masked(head: Head) -> Head:
    with torch.no_grad():
        head.get_parameter("bias")[2] = -math.inf
    return head


def _without_token(tensor: Tensor) -> Tensor:
    """Leave token 2 of 7 out, where a tensor has an entry a token."""
    if 7 not in tensor.shape:
        return tensor
    return tensor.index_select(tensor.shape.index(7), torch.tensor([0, 1, 3, 4, 5, 6]))


@pytest.mark.parametrize("target", [1, 2])
def test_a_bounded_function_masks_no_token(target: int, make: Make) -> None:
    """At a logit of −∞ the hidden units are all off: the loss and its gradients are numbers still."""
    head, hidden = _masked(make("lms-net")), torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    loss = head.nll(hidden, torch.full((3,), target))
    assert loss.isfinite()
    assert all(g.isfinite().all() for g in torch.autograd.grad(loss, [hidden, *head.parameters()]))


@pytest.mark.parametrize("name", ["mos", "doc"])
def test_the_gradient_at_probability_zero_is_that_of_the_components_by_their_priors(name: str, make: Make) -> None:
    """Σ_k π_k ∂(−log p_k), with −log p_k the loss of component k alone but for its infinite constant."""
    head, hidden = _masked(make(name).requires_grad_(False)), torch.randn(1, 5, dtype=torch.float64, requires_grad=True)
    (ours,) = torch.autograd.grad(head.nll(hidden, torch.tensor([2])), hidden)
    factors, log_prior, _ = head.scores(hidden)
    logits = factors[0].contexts @ head.weight.T
    others = torch.logsumexp(logits + head.get_parameter("bias"), -1)
    surrogate = (log_prior.detach().exp() * (others - logits[..., 2] - log_prior)).sum()
    torch.testing.assert_close(ours, torch.autograd.grad(surrogate, hidden)[0], rtol=1000 * EPS, atol=10 * EPS)
