"""Errors against float64, beside those of the plain formula in the same types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
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
DRAWS = 16
"""Heads and inputs that errors are taken over: those of one draw are a matter of luck."""
ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}


def _drawn(make: Make, name: str) -> Iterator[tuple[Head, Tensor, Tensor]]:
    """Yield heads in float32 with inputs and targets."""
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        head = make(name, hidden=24, vocab=300, size=16, **(WIDE if "plif" in name else {})).float()
        yield head, torch.randn(64, 24), torch.randint(300, (64,))


def _outcomes(loss: Tensor, head: Head, hidden: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 2, loss.numel(), dtype=loss.dtype).reshape(loss.shape)  # told apart from each other
    gradients = torch.autograd.grad(loss, [hidden, *head.parameters()], weights)
    return [t.detach().double() for t in (loss, *gradients)]


def _truth(head: Head, hidden: Tensor, targets: Tensor, reduction: Any = "mean") -> list[Tensor]:
    exact = hidden.detach().double().requires_grad_()
    head.double()
    return _outcomes(head.nll(exact, targets, reduction=reduction), head, exact)


def _plain(head: Head, hidden: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Logits, softmaxes and their mixture by torch's own operations, N × K × M, in whatever types torch chooses."""
    factors, log_prior, function = head.scores(hidden)
    logits, *others = (F.linear(*one) for one in factors)
    logits = logits if function is None else function(*(one.to(head.weight.dtype) for one in (logits, *others)))
    log_probs = torch.log_softmax(logits, -1)
    if log_prior is not None:
        log_probs = torch.logsumexp(log_prior.unsqueeze(-1) + log_probs, -2, keepdim=True)
    return F.nll_loss(log_probs.squeeze(-2).float(), targets, reduction=reduction)


class _Errors:
    """Sums of squares over all draws: our errors, the plain formula's, and the numbers themselves."""

    def __init__(self) -> None:
        self.squares: list[Tensor] = []

    def add(self, ours: list[Tensor], plain: list[Tensor], truth: list[Tensor]) -> None:
        self.squares.append(
            torch.stack([
                torch.stack([(our - true).square().sum(), (their - true).square().sum(), true.square().sum()])
                for our, their, true in zip(ours, plain, truth, strict=True)
            ])
        )  # fmt: skip

    def check(self, luck: float) -> None:
        """Hold the root mean square of our errors to that of the plain formula's; ``luck`` is a share of the numbers'.

        It is one rounding or less: where both compute the same, either may come out ahead by that.
        """
        for our_error, their_error, size in torch.stack(self.squares).sum(0).sqrt():
            assert our_error <= their_error + luck * size


@every_head
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_float32_errors_are_no_larger_than_the_plain_formulas(
    name: str, scale: float, reduction: Any, make: Make
) -> None:
    errors = _Errors()
    for head, hidden, targets in _drawn(make, name):
        with torch.no_grad():
            head.weight.mul_(scale)
        hidden.requires_grad_()
        ours = _outcomes(head.nll(hidden, targets, reduction=reduction), head, hidden)
        plain = _outcomes(_plain(head, hidden, targets, reduction), head, hidden)
        errors.add(ours, plain, _truth(head, hidden, targets, reduction))
    errors.check(ROUNDOFF[torch.float32])


@pytest.mark.parametrize("name", ["softmax", "mos", "sigsoftmax"])
def test_many_rows_are_summed_as_well_as_torch_sums_them(name: str, make: Make) -> None:
    """The bias's gradient over 4,000 rows: a product that adds them one by one loses five times as much."""
    errors = _Errors()
    head, hidden, targets = make(name, vocab=50).float(), torch.randn(4_000, 5), torch.randint(50, (4_000,))
    of = [head.get_parameter("bias")]
    ours, plain = (torch.autograd.grad(nll(hidden, targets), of) for nll in (head.nll, partial(_plain, head)))
    truth = torch.autograd.grad(head.double().nll(hidden.double(), targets), of)
    errors.add(*([found.double() for found in one] for one in (ours, plain, truth)))
    errors.check(ROUNDOFF[torch.float32])


@every_head
def test_bfloat16_errors_are_no_larger_than_the_plain_formulas(name: str, make: Make) -> None:
    errors = _Errors()
    for head, wide, targets in _drawn(make, name):
        hidden = wide.bfloat16().requires_grad_()
        loss = head.bfloat16().nll(hidden, targets)
        assert loss.dtype == head.log_prob(hidden).dtype == torch.float32
        ours, plain = _outcomes(loss, head, hidden), _outcomes(_plain(head, hidden, targets), head, hidden)
        errors.add(ours, plain, _truth(head, hidden, targets))
    errors.check(ROUNDOFF[torch.bfloat16] / 10)


@every_head
def test_autocast_multiplies_in_bfloat16_and_sums_in_float32(name: str, make: Make) -> None:
    errors = _Errors()
    for head, hidden, targets in _drawn(make, name):
        hidden.requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            loss, none = head.nll(hidden, targets), head.nll(hidden, targets, reduction="none")
            plain = _plain(head, hidden, targets)
        assert loss.dtype == none.dtype == torch.float32
        gradients = torch.autograd.grad(loss, list(head.parameters()), retain_graph=True)
        assert {gradient.dtype for gradient in gradients} == {torch.float32}
        torch.testing.assert_close(none.mean(), loss, rtol=1e-6, atol=0)
        ours, theirs = _outcomes(loss, head, hidden), _outcomes(plain, head, hidden)
        truth = _truth(head, hidden, targets)
        assert not torch.equal(ours[0], truth[0])
        errors.add(ours, theirs, truth)
    errors.check(ROUNDOFF[torch.bfloat16] / 10)


@pytest.mark.parametrize("name", ["mos", "mos-plif", "doc"])
def test_autocast_rounds_no_mixture_weights(name: str, make: Make) -> None:
    """In bfloat16 they sum to 1 within a percent or so, and the loss is off by that."""
    head = make(name, hidden=24, size=16).float()
    hidden = torch.randn(64, 24)
    with torch.autocast("cpu", torch.bfloat16):
        found = head.log_prob(hidden)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(64), rtol=0, atol=1e-5)


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
