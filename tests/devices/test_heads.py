"""Every head on a pretended accelerator: its numbers are the CPU's, and nothing is left on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from formulas import formula
from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head
from softmax_bottleneck.heads.blocked import blocked_loss

M, HIDDEN = 11, 6
TOKENS = torch.linspace(-1, 1, M)


def make(name: str) -> Head:
    layers = {"layer_sizes": (2, 4)} if name == "doc" else {}
    return heads.build(name, hidden_size=HIDDEN, vocab_size=M, **layers, **getattr(formula(name), "SETTINGS", {}))


def _numbers(head: Head, hidden: Tensor, targets: Tensor, how: str) -> list[Tensor]:
    """Log-probabilities, loss, and gradients of the hidden states and all parameters."""
    hidden = hidden.clone().requires_grad_()
    if how == "distributions":
        loss = blocked_loss(
            head.scores(hidden), torch.softmax(hidden.detach() @ torch.ones_like(hidden)[:1].T * TOKENS.to(hidden), -1)
        )
    else:
        with torch.autocast(hidden.device.type, torch.bfloat16, enabled=how == "autocast"):
            loss = head.nll(hidden, targets, ignore_index=-100 if how == "ignored" else None)
    loss.backward()
    return [head.log_prob(hidden), loss, *(each.grad for each in (hidden, *head.parameters()))]


@pytest.mark.parametrize("how", ["ids", "ignored", "distributions", "autocast"])
@pytest.mark.parametrize("name", heads.REGISTRY)
def test_losses_and_gradients(name: str, how: str, device: str) -> None:
    dtype = torch.float32 if how == "autocast" else torch.float64
    head, targets = make(name).to(dtype), torch.randint(M, (9,))
    hidden = torch.randn(9, HIDDEN, dtype=dtype)
    if how == "ignored":
        targets[2:4] = -100
    expected = _numbers(copy.deepcopy(head), hidden, targets, how)
    found = _numbers(head.to(device), hidden.to(device), targets.to(device), how)
    assert {one.device.type for one in found} == {device}
    tolerance = 2e-2 if how == "autocast" else 1e-12
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", heads.REGISTRY)
def test_without_float64(name: str, no_float64: None, device: str) -> None:
    head, hidden, targets = make(name), torch.randn(9, HIDDEN), torch.randint(M, (9,))
    expected = _numbers(copy.deepcopy(head), hidden, targets, "ids")
    found = _numbers(head.to(device), hidden.to(device), targets.to(device), "ids")
    assert {one.device.type for one in found} == {device}
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", heads.REGISTRY)
def test_a_mixture_of_devices_is_refused(name: str, device: str) -> None:
    with pytest.raises(RuntimeError, match=r"device|CPU"):
        make(name).to(device).log_prob(torch.randn(9, HIDDEN))
