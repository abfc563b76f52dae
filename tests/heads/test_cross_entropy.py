"""One pass against autograd over the head's own log-probabilities, for every head there is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head, blocked
from softmax_bottleneck.synthetic.dirichlet import sample_dirichlet_log_probs

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


def _plain(head: Head, hidden: Tensor, targets: Tensor) -> tuple[Tensor, list[Tensor]]:
    loss = -(targets * head.log_prob(hidden)).sum(1)
    inputs = [hidden, *head.parameters()]
    found = torch.autograd.grad(loss.sum(), inputs, allow_unused=True)
    return loss.detach(), [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def _backward(head: Head, hidden: Tensor, targets: Tensor) -> Tensor:
    """Add the gradients of the sum; return the loss of each row, which has to come to the same sum."""
    loss = blocked.blocked_loss(head.scores(hidden), targets, reduction="sum")
    loss.backward()
    rows = blocked.blocked_loss(head.scores(hidden), targets, reduction="none").detach()
    torch.testing.assert_close(rows.sum(), loss.detach())
    return rows


def _ours(head: Head, hidden: Tensor, targets: Tensor) -> tuple[Tensor, list[Tensor]]:
    loss = _backward(head, hidden, targets)
    return loss, [torch.zeros_like(x) if x.grad is None else x.grad for x in [hidden, *head.parameters()]]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", SINGLE_LAYER)
def test_loss_and_gradients_are_those_of_log_prob(name: str, bias: bool) -> None:
    head, hidden, targets = _problem(name, bias=bias)
    expected = _plain(head, hidden, targets)
    torch.testing.assert_close(_ours(head, hidden, targets), expected, rtol=1e-9, atol=1e-12)
    # A second call adds to the gradients; a loss is not counted twice.
    again, doubled = _ours(head, hidden, targets)
    torch.testing.assert_close((again, doubled), (expected[0], [2 * g for g in expected[1]]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["mos", "softmax", "sigsoftmax"])
def test_probabilities_that_underflow(name: str) -> None:
    """Logits of thousands: Q is zero in floating point where P* is not."""
    head, hidden, targets = _problem(name, bias=False, scale=4000.0)
    expected = _plain(head, hidden, targets)
    assert float(expected[0].max()) > 745  # −log of the smallest float64
    torch.testing.assert_close(_ours(head, hidden, targets), expected, rtol=1e-9, atol=1e-12)


def test_negligible_underflow_keeps_to_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    head, hidden, targets = _problem("mos", bias=False, scale=4000.0)
    monkeypatch.delattr(blocked, "_in_log_space")
    with torch.no_grad():
        mode = head.log_prob(hidden).argmax(1, keepdim=True)
    certain = torch.zeros_like(targets).scatter_(1, mode, 1.0)
    loss, gradients = _ours(head, hidden, certain)
    assert loss.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", ["softmax", "mos", "lms-plif", "lms-net", "sigsoftmax", "mos-plif"])
def test_no_product_is_taken_with_subnormal_numbers(name: str) -> None:
    """It would take a hundred times as long on a CPU; probabilities of confident models are full of them."""
    head, hidden, targets = (each.float() for each in _problem(name, bias=True, scale=600.0))
    with torch.no_grad():
        mode = head.log_prob(hidden).argmax(1, keepdim=True)
    certain = torch.zeros_like(targets).scatter_(1, mode, 1.0)  # or mixtures would be taken in log space
    smallest = torch.finfo(torch.float32).tiny
    taken: list[Tensor] = []

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if call.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.addmm):
                taken.extend(argument.clone() for argument in args if isinstance(argument, Tensor))
            return call(*args, **(kwargs or {}))

    with Products():
        _backward(head, hidden.detach().requires_grad_(), certain)
    gradients = [factor for factor in taken if 23 in factor.shape and factor.shape != head.weight.shape[::-1]]
    assert len(gradients) >= 2
    assert not any(((gradient != 0) & (gradient.abs() < smallest)).any() for gradient in gradients)


def test_mixtures_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    head, hidden, targets = _problem("mos", bias=True)
    expected = _plain(head, hidden, targets)
    monkeypatch.setattr(blocked, "MIXTURE_BYTES", 2 * 15 * 23 * 8)
    torch.testing.assert_close(_ours(head, hidden, targets), expected, rtol=1e-9, atol=1e-12)


def test_float32_is_as_exact_as_the_plain_formula() -> None:
    exact, hidden, targets = _problem("softmax", bias=False)
    truth = _plain(exact, hidden, targets)
    head, hidden, targets = exact.float(), hidden.detach().float().requires_grad_(), targets.float()
    plain, ours = _plain(head, hidden, targets), _ours(head, hidden, targets)
    eps = torch.finfo(torch.float32).eps
    for true, usual, found in zip([truth[0], *truth[1]], [plain[0], *plain[1]], [ours[0], *ours[1]], strict=True):
        slack = 4 * eps * float(true.abs().max())
        assert float((found - true).abs().max()) <= float((usual - true).abs().max()) + slack


def test_lms_with_the_identity_is_softmax() -> None:
    softmax, hidden, targets = _problem("softmax", bias=False)
    lms = heads.build("lms-plif", hidden_size=6, embedding_size=4, vocab_size=23, bias=False, knots=50, noise=0.0)
    lms = lms.double()
    lms.load_state_dict(softmax.state_dict(), strict=False)
    first, second = _ours(softmax, hidden, targets), None
    expected, hidden.grad = hidden.grad, None
    second = _backward(lms, hidden, targets)
    torch.testing.assert_close(second, first[0])
    torch.testing.assert_close(hidden.grad, expected)
    torch.testing.assert_close(lms.weight.grad, softmax.weight.grad)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", SINGLE_LAYER)
def test_each_row_may_weigh_differently(name: str, bias: bool) -> None:
    head, hidden, targets = _problem(name, bias=bias)
    upstream, inputs = torch.linspace(-1, 2, 9).double(), [hidden, *head.parameters()]
    plain = -(targets * head.log_prob(hidden)).sum(1)
    ours = blocked.blocked_loss(head.scores(hidden), targets, reduction="none")
    expected = torch.autograd.grad(plain, inputs, upstream, materialize_grads=True, allow_unused=True)
    found = torch.autograd.grad(ours, inputs, upstream, materialize_grads=True, allow_unused=True)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 4000.0])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradcheck_of_a_mixture(scale: float, reduction: Any) -> None:
    """Also in log space, where the mixture underflows."""
    head, hidden, targets = _problem("mos", bias=True, scale=scale)
    hidden = (hidden.detach() / scale**0.5).requires_grad_()

    def loss(hidden: Tensor, *_: Tensor) -> Tensor:
        return blocked.blocked_loss(head.scores(hidden), targets, reduction=reduction)

    step = 1e-6 / scale**0.5
    assert torch.autograd.gradcheck(loss, (hidden,), eps=step, atol=1e-4 * scale**0.5)


def test_no_tensor_of_all_components() -> None:
    """Neither T × M × K, nor anything larger than P* or a block."""
    contexts, vocab = 70, 8000
    head = heads.build("mos", hidden_size=6, vocab_size=vocab, embedding_size=4)
    hidden, targets = torch.randn(contexts, 6, requires_grad=True), torch.full((contexts, vocab), 1 / vocab)
    largest = 0

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            result = call(*args, **(kwargs or {}))
            largest = max(largest, result.numel() if isinstance(result, Tensor) else 0)
            return result

    with Largest():
        blocked.blocked_loss(head.scores(hidden), targets, reduction="sum").backward()
    assert largest <= max(blocked.MIXTURE_BYTES // 4, contexts * vocab)
