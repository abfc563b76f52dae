"""Where two heads must agree: a mixture of one, a mixture that has made up its mind, an identity between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head
from softmax_bottleneck.heads.plif import UNIT_SLOPE

Make = Callable[..., Head]
EPS = torch.finfo(torch.float64).eps


def _outcomes(head: Head, hidden: Tensor, targets: Tensor) -> list[Tensor]:
    """Log-probabilities, losses, and the loss's gradients in all that a plain softmax has too."""
    loss = head.nll(hidden, targets, reduction="none")
    shared = [parameter for name, parameter in head.named_parameters() if not name.startswith(("mixture", "function"))]
    return [head.log_prob(hidden), loss, *torch.autograd.grad(loss.sum(), [hidden, *shared])]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["mos", "moc"])
def test_a_mixture_of_one_is_softmax(name: str, bias: bool, make: Make) -> None:
    mixture, softmax = make(name, components=1, bias=bias), make("softmax", bias=bias)
    softmax.load_state_dict({key: value for key, value in mixture.state_dict().items() if "mixture" not in key})
    hidden, targets = torch.randn(20, 5, dtype=torch.float64, requires_grad=True), torch.randint(7, (20,))
    expected = _outcomes(softmax, hidden, targets)
    torch.testing.assert_close(_outcomes(mixture, hidden, targets), expected, rtol=20 * EPS, atol=20 * EPS)
    assert mixture.rank_bound.raw == softmax.rank_bound.raw
    assert mixture.rank_bound.centered == softmax.rank_bound.centered


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("knots", [1, 2, 1000, 100_000])
def test_lms_plif_with_unit_slopes_is_softmax(knots: int, bias: bool, make: Make) -> None:
    plif, softmax = make("lms-plif", knots=knots, interval=3.0, bias=bias), make("softmax", bias=bias)
    nn.init.constant_(plif.get_parameter("function.v"), UNIT_SLOPE)
    softmax.load_state_dict({key: value for key, value in plif.state_dict().items() if "function" not in key})
    hidden, targets = torch.randn(20, 5, dtype=torch.float64, requires_grad=True), torch.randint(7, (20,))
    expected = _outcomes(softmax, hidden, targets)
    # f(x) = x to a few roundings of the interval's ends.
    torch.testing.assert_close(_outcomes(plif, hidden, targets), expected, rtol=100 * EPS, atol=100 * EPS)


def test_lms_plif_without_noise_starts_as_softmax(make: Make) -> None:
    v = make("lms-plif", noise=0.0).get_parameter("function.v")
    assert torch.equal(v, torch.full_like(v, torch.tensor(UNIT_SLOPE).item()))
    assert make("lms-plif", noise=0.5, knots=10_000).get_parameter("function.v").std().item() == pytest.approx(
        0.5, 0.05
    )


@pytest.mark.parametrize("name", ["mos", "moc"])
@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_a_one_hot_prior_leaves_one_component(name: str, chosen: int, make: Make) -> None:
    """Weights of e^−1000 vanish even in float64: values and gradients are those of the component that is left."""
    mixture, softmax = make(name), make("softmax")
    hidden, targets = torch.randn(20, 5, dtype=torch.float64).abs(), torch.randint(7, (20,))
    hidden.requires_grad_()
    with torch.no_grad():
        prior = mixture.get_parameter("mixture.projection.weight").zero_()
        prior[chosen] = 1e4 / hidden.detach().sum(1).min()
    state = {key: value for key, value in mixture.state_dict().items() if "mixture" not in key}
    for key in ("contexts.projection.weight", "contexts.projection.bias"):
        state[key] = state[key].split(3)[chosen]
    softmax.load_state_dict(state)
    theirs = _outcomes(softmax, hidden, targets)
    ours = _outcomes(mixture, hidden, targets)
    for place in (3 + len(("weight", "bias")), 4 + len(("weight", "bias"))):  # the contexts' weight and bias
        rest = torch.cat([part for k, part in enumerate(ours[place].split(3)) if k != chosen])
        assert torch.equal(rest, torch.zeros_like(rest))
        ours[place] = ours[place].split(3)[chosen]
    torch.testing.assert_close(ours, theirs, rtol=50 * EPS, atol=50 * EPS)


@pytest.mark.parametrize("name", [name for name, cls in heads.REGISTRY.items() if not issubclass(cls, heads.Pointwise)])
def test_a_shift_of_all_biases_changes_nothing(name: str, make: Make) -> None:
    """True of every softmax, but not of a function that bends the logits after the bias."""
    head: Any = make(name)
    hidden, targets = torch.randn(20, 5, dtype=torch.float64, requires_grad=True), torch.randint(7, (20,))
    before = _outcomes(head, hidden, targets)
    with torch.no_grad():
        head.bias.add_(3.0)
    torch.testing.assert_close(_outcomes(head, hidden, targets), before, rtol=100 * EPS, atol=100 * EPS)
