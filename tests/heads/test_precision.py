"""Errors against float64, beside those of the plain formula in the same types."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head

Make = Callable[..., Head]
DRAWS = 12
"""Heads and inputs that errors are taken over: those of one draw are a matter of luck."""
TYPES = {"float32": 2.0**-24, "bfloat16": 2.0**-8 / 10, "autocast": 2.0**-8 / 10}
"""Type of the products → error, relative to the numbers, by which either way of computing may come out ahead."""


def _outcomes(log_probs: Tensor, loss: Tensor, head: Head, hidden: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 2, loss.numel(), dtype=loss.dtype).reshape(loss.shape)  # told apart from each other
    gradients = torch.autograd.grad(loss, [hidden, *head.parameters()], weights)
    return [t.detach().double() for t in (log_probs, loss, *gradients)]


def _plain(head: Head, hidden: Tensor) -> Tensor:
    """Log-probabilities by torch's own operations, N × K × M, in whatever types torch chooses."""
    factors, log_prior, function = head.scores(hidden)
    logits, *others = (F.linear(*one) for one in factors)
    logits = logits if function is None else function(*(one.to(head.weight.dtype) for one in (logits, *others)))
    log_probs = torch.log_softmax(logits, -1)
    if log_prior is not None:
        log_probs = torch.logsumexp(log_prior.unsqueeze(-1) + log_probs, -2, keepdim=True)
    return log_probs.squeeze(-2).float()


def _check(draws: list[tuple[list[Tensor], list[Tensor], list[Tensor]]], luck: float) -> None:
    """Compare the root mean square of our errors with the plain formula's, given ours, the plain and true numbers."""
    squares = [
        torch.stack([torch.stack([(our - true).square().sum(), (their - true).square().sum(), true.square().sum()])
                     for our, their, true in zip(*draw, strict=True)])
        for draw in draws
    ]  # fmt: skip
    for our_error, their_error, size in torch.stack(squares).sum(0).sqrt():
        assert our_error <= their_error + luck * size


@pytest.mark.parametrize("name", heads.REGISTRY)
@pytest.mark.parametrize(
    ("kind", "reduction", "scale"),
    [("float32", "mean", 1.0), ("float32", "none", 30.0), ("bfloat16", "mean", 1.0), ("autocast", "none", 1.0)],
)
def test_errors_are_no_larger_than_the_plain_formulas(
    name: str, kind: str, reduction: Any, scale: float, make: Make
) -> None:
    draws = []
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        wide = {"knots": 30, "interval": 20.0} if "plif" in name else {}
        head = make(name, hidden=24, vocab=300, size=16, **wide).float()
        with torch.no_grad():
            head.weight.mul_(scale)
        hidden, targets = torch.randn(64, 24), torch.randint(300, (64,))
        if kind == "bfloat16":
            head, hidden = head.bfloat16(), hidden.bfloat16()
        hidden.requires_grad_()
        with torch.autocast("cpu", torch.bfloat16) if kind == "autocast" else nullcontext():
            log_probs, loss, plain = (
                head.log_prob(hidden),
                head.nll(hidden, targets, reduction=reduction),
                _plain(head, hidden),
            )
        assert loss.dtype == torch.float32
        ours = _outcomes(log_probs, loss, head, hidden)
        theirs = _outcomes(plain, F.nll_loss(plain, targets, reduction=reduction), head, hidden)
        exact = hidden.detach().double().requires_grad_()
        head.double()
        truth = _outcomes(head.log_prob(exact), head.nll(exact, targets, reduction=reduction), head, exact)
        assert kind == "float32" or not torch.equal(ours[1], truth[1])
        draws.append((ours, theirs, truth))
    _check(draws, TYPES[kind])


@pytest.mark.parametrize("name", ["softmax", "mos", "sigsoftmax"])
def test_many_rows_are_summed_as_well_as_torch_sums_them(name: str, make: Make) -> None:
    """The bias's gradient over 4,000 rows: a product that adds them one by one loses five times as much."""
    head, hidden, targets = make(name, vocab=50).float(), torch.randn(4_000, 5), torch.randint(50, (4_000,))
    of = [head.get_parameter("bias")]
    losses = head.nll(hidden, targets), F.nll_loss(_plain(head, hidden), targets)
    ours, plain = (torch.autograd.grad(loss, of) for loss in losses)
    truth = torch.autograd.grad(head.double().nll(hidden.double(), targets), of)
    ours, plain, truth = ([found.double() for found in one] for one in (ours, plain, truth))
    _check([(ours, plain, truth)], TYPES["float32"])


@pytest.mark.parametrize("name", ["mos", "mos-plif", "doc"])
def test_autocast_rounds_no_mixture_weights(name: str, make: Make) -> None:
    """In bfloat16 they sum to 1 within a percent or so, and the loss is off by that; float64 is left alone."""
    head, hidden = make(name, hidden=24, size=16).float(), torch.randn(64, 24)
    with torch.autocast("cpu", torch.bfloat16):
        sums = head.log_prob(hidden).exp().sum(-1)
        exact = head.double().log_prob(hidden.double())
    torch.testing.assert_close(sums, torch.ones(64), rtol=0, atol=1e-5)
    assert torch.equal(exact, head.log_prob(hidden.double()))


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
