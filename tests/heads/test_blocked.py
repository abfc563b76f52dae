"""The block-by-block loss, at the places where digits could be lost, and against whole distributions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head, blocked
from softmax_bottleneck.heads.blocked import blocked_loss
from softmax_bottleneck.heads.scores import Factors, Scores
from softmax_bottleneck.synthetic.dirichlet import sample_dirichlet_log_probs

from .conftest import Watching


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


SETTINGS = {"lms-plif": {"knots": 50}, "mos-plif": {"knots": 50}}
SINGLE_LAYER = [name for name in heads.REGISTRY if "layer_sizes" not in heads.parameters(name)]


def _problem(name: str, *, bias: bool, scale: float = 1.0) -> tuple[Head, Tensor, Tensor]:
    torch.manual_seed(0)
    head = heads.build(name, hidden_size=6, vocab_size=23, embedding_size=4, bias=bias, **SETTINGS.get(name, {}))
    head = head.double()
    with torch.no_grad():
        head.weight.mul_(scale)
    targets = sample_dirichlet_log_probs(9, 23, 0.3, torch.Generator().manual_seed(1), dtype=torch.float64).exp()
    return head, torch.randn(9, 6, dtype=torch.float64, requires_grad=True), targets


def _outcomes(loss: Tensor, head: Head, hidden: Tensor) -> list[Tensor]:
    """The loss, and gradients for which each row weighs differently."""
    upstream = torch.linspace(-1, 2, 9, dtype=loss.dtype) if loss.ndim else torch.ones_like(loss)
    inputs = [hidden, *head.parameters()]
    return [loss.detach(), *torch.autograd.grad(loss, inputs, upstream, materialize_grads=True, allow_unused=True)]


def _plain(head: Head, hidden: Tensor, targets: Tensor, reduction: str = "none") -> list[Tensor]:
    loss = -(targets * head.log_prob(hidden)).sum(1)
    return _outcomes(loss if reduction == "none" else loss.sum(), head, hidden)


def _ours(head: Head, hidden: Tensor, targets: Tensor, reduction: Any = "none") -> list[Tensor]:
    return _outcomes(blocked_loss(head.scores(hidden), targets, reduction=reduction), head, hidden)


@pytest.mark.parametrize("reduction", ["sum", "none"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("name", "scale"), [*((name, 1.0) for name in SINGLE_LAYER), ("mos", 4e3), ("softmax", 4e3), ("sigsoftmax", 4e3)]
)
def test_loss_and_gradients_are_those_of_log_prob(name: str, scale: float, bias: bool, reduction: Any) -> None:
    """Also with logits of thousands, where Q is zero in floating point and P* is not."""
    head, hidden, targets = _problem(name, bias=bias, scale=scale)
    expected = _plain(head, hidden, targets, reduction)
    assert scale == 1 or float(expected[0].max()) > 745  # −log of the smallest float64
    torch.testing.assert_close(_ours(head, hidden, targets, reduction), expected, rtol=1e-9, atol=1e-12)


def test_mixtures_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    head, hidden, targets = _problem("mos", bias=True)
    expected = _plain(head, hidden, targets)
    monkeypatch.setattr(blocked, "MIXTURE_BYTES", 2 * 15 * 23 * 8)
    torch.testing.assert_close(_ours(head, hidden, targets), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "mos", "lms-plif", "lms-net", "sigsoftmax", "mos-plif"])
def test_no_product_is_taken_with_subnormal_numbers(name: str) -> None:
    """It would take a hundred times as long on a CPU; probabilities of confident models are full of them."""
    head, hidden, targets = (each.float() for each in _problem(name, bias=True, scale=600.0))
    likeliest = head.log_prob(hidden).argmax(1, keepdim=True)
    certain = torch.zeros_like(targets).scatter_(1, likeliest, 1.0)  # or mixtures would be taken in log space
    factors: list[Tensor] = []

    def note_product(operation: Any, args: Any, result: Tensor) -> None:
        if operation.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.addmm):
            factors.extend(argument.clone() for argument in args if isinstance(argument, Tensor))

    with Watching(note_product):
        _ours(head, hidden.detach().requires_grad_(), certain, "sum")
    gradients = [factor for factor in factors if 23 in factor.shape and factor.shape != head.weight.shape[::-1]]
    assert len(gradients) >= 2
    smallest = torch.finfo(torch.float32).tiny
    assert not any(((gradient != 0) & (gradient.abs() < smallest)).any() for gradient in gradients)


def test_float32_is_as_exact_as_the_plain_formula() -> None:
    exact, hidden, targets = _problem("softmax", bias=False)
    truth = _plain(exact, hidden, targets)
    head, hidden, targets = exact.float(), hidden.detach().float().requires_grad_(), targets.float()
    for true, usual, found in zip(truth, _plain(head, hidden, targets), _ours(head, hidden, targets), strict=True):
        slack = 4 * torch.finfo(torch.float32).eps * float(true.abs().max())
        assert float((found - true).abs().max()) <= float((usual - true).abs().max()) + slack


def test_no_tensor_of_all_components() -> None:
    """Neither T × M × K, nor anything larger than P* or a block."""
    contexts, vocab = 70, 8000
    head = heads.build("mos", hidden_size=6, vocab_size=vocab, embedding_size=4)
    hidden, targets = torch.randn(contexts, 6, requires_grad=True), torch.full((contexts, vocab), 1 / vocab)
    sizes: list[int] = []
    with Watching(lambda operation, args, result: sizes.append(result.numel())):
        blocked_loss(head.scores(hidden), targets, reduction="sum").backward()
    assert max(sizes) <= max(blocked.MIXTURE_BYTES // 4, contexts * vocab)
