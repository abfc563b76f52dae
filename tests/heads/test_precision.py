"""Half precision and autocast: errors against float64, beside those of the plain formula in the same types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head

Make = Callable[..., Head]
every_head = pytest.mark.parametrize("name", heads.REGISTRY)
WIDE = {"knots": 30, "interval": 20.0}


def _head(make: Make, name: str) -> Head:
    return make(name, hidden=24, vocab=300, size=16, **(WIDE if "plif" in name else {})).float()


def _outcomes(loss: Tensor, head: Head, hidden: Tensor) -> list[Tensor]:
    return [t.detach().double() for t in (loss, *torch.autograd.grad(loss, [hidden, *head.parameters()]))]


def _plain(head: Head, hidden: Tensor, targets: Tensor) -> Tensor:
    """Logits, softmaxes and their mixture by torch's own operations, N × K × M, in whatever types torch chooses."""
    factors, log_prior, function = head.scores(hidden)
    logits, *others = (F.linear(*one) for one in factors)
    logits = logits if function is None else function(*(one.to(head.weight.dtype) for one in (logits, *others)))
    log_probs = torch.log_softmax(logits, -1)
    if log_prior is not None:
        log_probs = torch.logsumexp(log_prior.unsqueeze(-1) + log_probs, -2, keepdim=True)
    return F.nll_loss(log_probs.squeeze(-2).float(), targets)


def _held_to(ours: list[Tensor], plain: list[Tensor], truth: list[Tensor], eps: float) -> None:
    """Errors by their root mean square: the largest of a few hundred rounding errors is a matter of luck."""
    for our, their, true in zip(ours, plain, truth, strict=True):
        our_error, their_error = ((found - true).square().mean().sqrt() for found in (our, their))
        assert our_error <= 1.25 * their_error + eps * true.square().mean().sqrt()


@every_head
def test_bfloat16_errors_are_no_larger_than_the_plain_formulas(name: str, make: Make) -> None:
    head = _head(make, name).bfloat16()
    hidden, targets = torch.randn(64, 24, dtype=torch.bfloat16, requires_grad=True), torch.randint(300, (64,))
    loss = head.nll(hidden, targets)
    assert loss.dtype == head.log_prob(hidden).dtype == torch.float32
    ours, plain = _outcomes(loss, head, hidden), _outcomes(_plain(head, hidden, targets), head, hidden)
    exact = hidden.detach().double().requires_grad_()
    truth = _outcomes(head.double().nll(exact, targets), head, exact)
    _held_to(ours, plain, truth, torch.finfo(torch.bfloat16).eps / 2)


@every_head
def test_autocast_multiplies_in_bfloat16_and_sums_in_float32(name: str, make: Make) -> None:
    head = _head(make, name)
    hidden, targets = torch.randn(64, 24, requires_grad=True), torch.randint(300, (64,))
    with torch.autocast("cpu", torch.bfloat16):
        loss, none = head.nll(hidden, targets), head.nll(hidden, targets, reduction="none")
        plain = _plain(head, hidden, targets)
    assert loss.dtype == none.dtype == torch.float32
    gradients = torch.autograd.grad(loss, list(head.parameters()), retain_graph=True)
    assert {gradient.dtype for gradient in gradients} == {torch.float32}
    torch.testing.assert_close(none.mean(), loss, rtol=1e-6, atol=0)
    ours, theirs = _outcomes(loss, head, hidden), _outcomes(plain, head, hidden)
    exact = hidden.detach().double().requires_grad_()
    truth = _outcomes(head.double().nll(exact, targets), head, exact)
    assert not torch.equal(ours[0], truth[0])
    _held_to(ours, theirs, truth, torch.finfo(torch.bfloat16).eps / 2)


def test_many_rows_are_summed_in_float32(make: Make) -> None:
    """10,000 equal losses: in bfloat16 a sum of 256 ones and more stands still."""
    head = make("softmax", vocab=4).bfloat16()
    with torch.no_grad():
        head.weight.zero_()
        head.get_parameter("bias").zero_()
    loss = head.nll(torch.ones(10_000, 5, dtype=torch.bfloat16), torch.zeros(10_000, dtype=torch.long))
    loss.backward()
    assert loss.item() == pytest.approx(1.3862943611, rel=1e-6)
    assert head.get_parameter("bias").grad.tolist() == [-0.75, 0.25, 0.25, 0.25]  # type: ignore[union-attr]


def test_autocast_leaves_float64_alone(make: Make) -> None:
    head, hidden, targets = make("mos"), torch.randn(8, 5).double(), torch.randint(7, (8,))
    with torch.autocast("cpu", torch.bfloat16):
        found: Any = head.nll(hidden, targets)
    assert torch.equal(found, head.nll(hidden, targets))
