"""Every head on a pretended accelerator: its numbers are the CPU's, and nothing is left on the CPU."""

from __future__ import annotations

import copy

import accelerator
import pytest
import torch
from torch import Tensor

from formulas import SETTINGS
from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head
from softmax_bottleneck.heads.blocked import blocked_loss

M, HIDDEN = 11, 6
TOKENS = torch.linspace(-1, 1, M)


def make(name: str) -> Head:
    layers = {"layer_sizes": (2, 4)} if name == "doc" else {}
    return heads.build(name, hidden_size=HIDDEN, vocab_size=M, **layers, **SETTINGS.get(name, {}))


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


@pytest.mark.parametrize("how", ["ignored", "distributions", "autocast", "without float64"])
@pytest.mark.parametrize("name", heads.REGISTRY)
def test_losses_and_gradients(name: str, how: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator.MODULE, "float64", how != "without float64")
    dtype = torch.float64 if how in ("ignored", "distributions") else torch.float32
    head, targets = make(name).to(dtype), torch.randint(M, (9,))
    hidden = torch.randn(9, HIDDEN, dtype=dtype)
    if how == "ignored":
        targets[2:4] = -100
    expected = _numbers(copy.deepcopy(head), hidden, targets, how)
    found = _numbers(head.to(device), hidden.to(device), targets.to(device), how)
    assert {one.device.type for one in found} == {device}
    tolerance = {"autocast": 2e-2, "without float64": 1e-5}.get(how, 1e-12)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=tolerance, atol=tolerance)


def test_a_mixture_of_devices_is_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match=r"device|CPU"):
        make("mos").to(device).log_prob(torch.randn(9, HIDDEN))
