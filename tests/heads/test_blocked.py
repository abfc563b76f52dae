"""The block-by-block loss itself, at the places where digits could be lost."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softmax_bottleneck.heads.blocked import blocked_loss
from softmax_bottleneck.heads.scores import Factors, Scores


def _mixture_nll(
    contexts: Tensor, log_prior: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, **options: Any
) -> Tensor:
    return blocked_loss(Scores((Factors(contexts, weight, bias),), log_prior), targets, **options)


EPS32 = torch.finfo(torch.float32).eps


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
@pytest.mark.parametrize("pointwise", [True, False])
def test_a_small_loss_keeps_its_digits_at_large_logits(offset: float, pointwise: bool) -> None:
    """A token of probability 1 − 3·10⁻⁴ amid logits near 10⁴: through the log-partition the loss would be 0."""
    logits = torch.tensor([offset, offset - 8.0, offset - 11.0])  # exact in float32
    context, target = torch.ones(1, 1), torch.zeros(1, dtype=torch.long)
    factors = (Factors(context.unsqueeze(1), logits.unsqueeze(1), None),)
    loss = blocked_loss(Scores(factors, function=nn.Identity() if pointwise else None), target)
    assert loss.item() == pytest.approx(math.log1p(math.exp(-8) + math.exp(-11)), rel=4 * EPS32 / 3e-4)


def test_a_component_of_weight_zero_takes_no_part() -> None:
    """log π = −∞ is the exact way to say it; nothing floors a probability, and no gradient is NaN."""
    torch.manual_seed(0)
    contexts = torch.randn(6, 2, 4, dtype=torch.float64, requires_grad=True)
    weight, targets = torch.randn(9, 4, dtype=torch.float64, requires_grad=True), torch.randint(9, (6,))
    log_prior = torch.tensor([[0.0, -math.inf]]).double().expand(6, 2)
    loss = _mixture_nll(contexts, log_prior, weight, None, targets)
    alone = _mixture_nll(contexts[:, :1], log_prior[:, :1], weight, None, targets)
    torch.testing.assert_close(loss, alone, rtol=1e-15, atol=0)
    ours = torch.autograd.grad(loss, [contexts, weight])
    theirs = torch.autograd.grad(alone, [contexts, weight])
    torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=1e-16)
    assert torch.equal(ours[0][:, 1], torch.zeros(6, 4).double())


def test_a_vanishing_component_can_carry_the_target() -> None:
    """π = e^−50 is below float32's eps, but the other component gives the target e^−200, so that this one dominates."""
    contexts = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    weight = torch.tensor([[200.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    loss = _mixture_nll(contexts, torch.tensor([[0.0, -50.0]]), weight, None, torch.tensor([1]))
    assert loss.item() == pytest.approx(50 + math.log(3), rel=4 * EPS32)


def test_inputs_need_not_be_contiguous() -> None:
    torch.manual_seed(0)
    contexts = torch.randn(4, 2, 6, dtype=torch.float64).transpose(0, 2).requires_grad_()
    weight = torch.randn(4, 9, dtype=torch.float64).T.requires_grad_()
    log_prior, targets = torch.log_softmax(torch.randn(2, 6).double(), 0).T, torch.randint(9, (12,))[::2]

    def outcomes(contiguous: bool) -> list[torch.Tensor]:
        given = [t.contiguous() if contiguous else t for t in (contexts, log_prior, weight, targets)]
        loss = _mixture_nll(given[0], given[1], given[2], None, given[3])
        return [loss, *torch.autograd.grad(loss, [contexts, weight])]

    torch.testing.assert_close(outcomes(False), outcomes(True), rtol=1e-14, atol=1e-16)
