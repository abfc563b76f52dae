"""Where two heads must agree, how single parts behave, and each head's rank by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head
from softmax_bottleneck.heads.inverse import logits_before
from softmax_bottleneck.heads.lms_net import MonotonicNetwork
from softmax_bottleneck.heads.plif import UNIT_SLOPE

Make = Callable[..., Head]
EPS = torch.finfo(torch.float64).eps


def _outcomes(head: Head, hidden: Tensor, targets: Tensor) -> list[Tensor]:
    """Log-probabilities, losses, and the loss's gradients in all that a plain softmax has too."""
    loss = head.nll(hidden, targets, reduction="none")
    shared = [parameter for name, parameter in head.named_parameters() if not name.startswith(("mixture", "function"))]
    return [head.log_prob(hidden), loss, *torch.autograd.grad(loss.sum(), [hidden, *shared])]


def test_noise_spreads_the_slopes(make: Make) -> None:
    assert make("lms-plif", noise=0.0).get_parameter("function.v").unique().tolist() == pytest.approx([UNIT_SLOPE])
    slopes = make("lms-plif", noise=0.5, knots=10_000).get_parameter("function.v")
    assert slopes.std().item() == pytest.approx(0.5, 0.05)


@pytest.mark.parametrize("settings", [{}, {"context_rank": 2}])
def test_residual_contexts_start_as_softmax_and_come_apart(settings: dict[str, Any], make: Make) -> None:
    mixture = heads.build("mos", hidden_size=5, vocab_size=7, components=3, residual=True, **settings).double()
    softmax = make("softmax", size=5)
    softmax.load_state_dict({key: value for key, value in mixture.state_dict().items() if key in ("weight", "bias")})
    hidden, targets = torch.randn(20, 5, dtype=torch.float64, requires_grad=True), torch.randint(7, (20,))
    torch.testing.assert_close(mixture.log_prob(hidden), softmax.log_prob(hidden), rtol=20 * EPS, atol=20 * EPS)
    mixture.nll(hidden, targets).backward()
    first, second, _ = mixture.get_parameter("contexts.projection.bias").grad.chunk(3)  # type: ignore[union-attr]
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("name", ["mos", "moc"])
def test_a_one_hot_prior_leaves_one_component(name: str, make: Make) -> None:
    """Weights of e^−1000 vanish even in float64: values and gradients are those of the component that is left."""
    mixture, softmax, chosen = make(name), make("softmax"), 1
    hidden, targets = torch.randn(20, 5, dtype=torch.float64).abs(), torch.randint(7, (20,))
    hidden.requires_grad_()
    with torch.no_grad():
        prior = mixture.get_parameter("mixture.projection.weight").zero_()
        prior[chosen] = 1e4 / hidden.detach().sum(1).min()
    state = {key: value for key, value in mixture.state_dict().items() if "mixture" not in key}
    for key in ("contexts.projection.weight", "contexts.projection.bias"):
        state[key] = state[key].split(3)[chosen]
    softmax.load_state_dict(state)
    ours = _outcomes(mixture, hidden, targets)
    for place in (5, 6):  # the gradients of the contexts' weight and bias
        assert not torch.cat([part for k, part in enumerate(ours[place].split(3)) if k != chosen]).any()
        ours[place] = ours[place].split(3)[chosen]
    torch.testing.assert_close(ours, _outcomes(softmax, hidden, targets), rtol=50 * EPS, atol=50 * EPS)


@pytest.mark.parametrize("k", ["2.5", "1.0", "0.5"])
def test_gss_is_the_published_form_at_any_logit(k: str, make: Make) -> None:
    """k(x − c) + c − (k − 1) log(1 + e^{x − c}), in fifty digits where float64 would overflow or cancel."""
    function: Any = make("gss", c=-1.5, k=float(k)).get_submodule("function")
    with localcontext() as context:
        context.prec = 600
        for x in (-300.0, -20.0, -1.5, 0.0, 3.0, 300.0):
            y = Decimal(x) + Decimal("1.5")
            exact = Decimal(k) * y - Decimal("1.5") - (Decimal(k) - 1) * (1 + y.exp()).ln()
            assert function(torch.tensor(x).double()).item() == pytest.approx(float(exact), rel=4 * EPS)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sinh": torch.sinh,
    "cubic": lambda x: x + x**3,
    "expm1": lambda x: torch.where(x > 0, torch.expm1(x), x),
    "leaky": functional.leaky_relu,
    "softplus": functional.softplus,
    "elu": functional.elu,
    "log-sigmoid": functional.logsigmoid,
    "soft cap": lambda x: 30 * torch.tanh(x / 30),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_increasing_function_can_start_at_a_distribution(name: str) -> None:
    """Also one that overflows, or is bounded on one side."""
    log_probs = torch.arange(1, 2001).double() ** -1.2
    log_probs = torch.log(log_probs / log_probs.sum())
    logits = logits_before(FUNCTIONS[name], log_probs)
    torch.testing.assert_close(FUNCTIONS[name](logits).log_softmax(0), log_probs, rtol=0, atol=1e-6)
    assert logits.abs().max() < 1000


DROPPING: dict[str, dict[str, Any]] = {"moc": {}, "mos": {}, "mos-plif": {"knots": 50}, "doc": {}}


def _dropping(name: str, context_dropout: float) -> heads.Head:
    torch.manual_seed(0)
    settings = {"hidden_size": 6, "vocab_size": 9, "embedding_size": 4, "components": 3, **DROPPING[name]}
    return heads.build(name, context_dropout=context_dropout, **settings).double()


@pytest.mark.parametrize("name", DROPPING)
def test_it_acts_in_training_alone_and_the_loss_sees_the_same_masks(name: str) -> None:
    head, hidden, targets = _dropping(name, 0.5), torch.randn(7, 2, 6, dtype=torch.float64), torch.randint(9, (7, 2))
    assert not torch.equal(head.log_prob(hidden), head.log_prob(hidden))
    torch.manual_seed(3)
    loss = head.nll(hidden, targets)
    torch.manual_seed(3)
    expected = functional.nll_loss(head.log_prob(hidden).flatten(0, 1), targets.flatten())
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(head.eval().log_prob(hidden), _dropping(name, 0.0).log_prob(hidden))


def test_a_sequence_has_one_mask_for_each_component_and_text() -> None:
    head, hidden = _dropping("mos", 0.5), torch.randn(7, 2, 6, dtype=torch.float64)
    dropped = head.scores(hidden).factors[0].contexts == 0
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))
    assert not torch.equal(dropped[0, 0], dropped[0, 1])
    assert not torch.equal(dropped[0, 0, 0], dropped[0, 0, 1])


@pytest.mark.parametrize(("units", "interval"), [(10, 20.0), (100, 20.0), (30, 3.0)])
def test_it_starts_as_the_identity_up_to_a_constant(units: int, interval: float) -> None:
    network = MonotonicNetwork(hidden_units=units, interval=interval).double()
    spacing = 2 * interval / units
    inner = interval - 3 * spacing  # away from the ends, where sigmoids have neighbours on both sides
    x = torch.linspace(-inner, inner, 200, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(network(x).sum(), x)
    assert (slope - 1).abs().max() < 0.01


def test_it_increases_and_is_bounded() -> None:
    network = MonotonicNetwork(hidden_units=5).double()
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    values = network(torch.linspace(-8, 8, 300, dtype=torch.float64))
    assert (values.diff() > 0).all()
    total = functional.softplus(network.v).sum()
    assert network(torch.tensor([-1e6, 1e6]).double()).tolist() == pytest.approx([0, total.item()], abs=1e-12)


D, M, T = 4, 40, 60


def _ranks(head: Head, hidden_size: int) -> tuple[int, int]:
    with torch.no_grad():
        head.weight.mul_(3)  # logits far from flat, so that no direction hides below the tolerance
        matrix = head.log_prob(3 * torch.randn(T, hidden_size, dtype=torch.float64)).numpy()
    return _rank(matrix), _rank(matrix - matrix.mean(1, keepdims=True))


def _rank(matrix: Any) -> int:
    """Directions above 10⁻⁹ of the largest: roundoff leaves some 10⁻¹⁵, the smallest true one here over 10⁻⁶."""
    return int(np.linalg.matrix_rank(matrix, tol=1e-9 * np.linalg.norm(matrix, 2)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", heads.REGISTRY)
def test_ranks_and_bounds(name: str, bias: bool, make: Make) -> None:
    """Log-linear heads are exactly at their bound, the others have none."""
    wide = {"knots": 1000, "interval": 20.0} if "plif" in name else {}
    cases = [(name, D, wide), (name, 9, wide), *([("mos", 9, {"components": 1})] if name == "mos" else [])]
    cases += [("gss", D, {"components": 2})] if name == "gss" else []
    for case, hidden, settings in cases:
        head = make(case, hidden=hidden, vocab=M, size=D, bias=bias, **settings)
        bound, ranks = head.rank_bound, _ranks(head, hidden)
        if name in ("softmax", "moc") or settings.get("components") == 1:
            assert (bound.raw, bound.centered) == ranks == (D + 1 + bias, D + bias)
        else:
            assert bound.raw is bound.centered is None
            assert "no rank bound" in bound.why
            assert min(ranks) > 2 * (D + 2)
