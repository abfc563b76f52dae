"""What every registered head promises, held against its formula written out a second time (see conftest)."""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from softmax_bottleneck import heads
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.heads import Head, blocked

from .conftest import Watching

Make = Callable[..., Head]
Naive = Callable[[Head, Tensor], Tensor]

EPS = torch.finfo(torch.float64).eps
EPS32 = torch.finfo(torch.float32).eps
CASES = [
    pytest.param(name, {"bias": bias, "size": size}, id=f"{name}-{'bias' if bias else 'no_bias'}-{label}")
    for name, bias, (label, size) in product(heads.REGISTRY, (True, False), (("d<hidden", 3), ("d=hidden", 5)))
] + [
    *((name, {"components": 2}) for name in ("sigsoftmax", "gss", "lms-plif", "lms-net")),
    *((name, {"components": 1}) for name in ("moc", "mos")),
    *(("mos", {"components": 2, "residual": True, "size": 5, **rank}) for rank in ({}, {"context_rank": 2})),
    ("gss", {"c": 0.5, "k": 0.5}),
    ("gss", {"k": 1.0}),
    ("lms-plif", {"learn_slopes": False}),
    ("lms-plif", {"knots": 1}),
    ("mos-plif", {"components": 1, "learn_slopes": False}),
    ("lms-net", {"hidden_units": 1}),
    ("doc", {"components": (0, 2)}),
    ("doc", {"components": 1, "layer_sizes": None}),
    ("mixtape", {"components": 2}),
    ("mixtape", {"components": 8, "gate_size": 1}),
]
BOUNDED = {"lms-net"}
"""Heads whose function keeps log-probabilities near each other, whatever the logits."""
LOG_LINEAR = {"softmax", "moc"}
every_case = pytest.mark.parametrize(("name", "settings"), CASES)
every_head = pytest.mark.parametrize("name", heads.REGISTRY)


def _loss(log_probs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    loss = -log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return {"mean": loss.mean, "sum": loss.sum, "none": loss.clone}[reduction]()


def _gradients(loss: Tensor, head: Head, hidden: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 2, loss.numel(), dtype=loss.dtype).reshape(loss.shape)  # told apart from each other
    learned = [parameter for parameter in head.parameters() if parameter.requires_grad]
    return list(torch.autograd.grad(loss, [hidden, *learned], weights))


@every_head
@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (2, 1, 3), (0,)])
def test_any_leading_shape(name: str, shape: tuple[int, ...], make: Make) -> None:
    head, hidden, targets = make(name), torch.randn(*shape, 5).double(), torch.randint(7, shape)
    assert torch.equal(head(hidden), head.log_prob(hidden))
    assert head(hidden).shape == (*shape, 7)
    losses = head.nll(hidden, targets, reduction="none")
    assert losses.shape == shape
    flat = [head.log_prob(h)[y] for h, y in zip(hidden.reshape(-1, 5), targets.reshape(-1), strict=True)]
    torch.testing.assert_close(losses.flatten().tolist(), [-f.item() for f in flat], rtol=50 * EPS, atol=0)


@every_case
@pytest.mark.parametrize("what", ["log_prob", "mean", "sum", "none"])
def test_numbers_and_gradients_are_those_of_the_formula(
    name: str, settings: dict[str, Any], what: Any, make: Make, naive: Naive
) -> None:
    """Log-probabilities, and the loss by each reduction."""
    head, targets = make(name, **settings), torch.randint(7, (3, 4))
    hidden = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    found, expected = head.log_prob(hidden), naive(head, hidden)
    if what != "log_prob":
        found, expected = head.nll(hidden, targets, reduction=what), _loss(expected, targets, what)
    torch.testing.assert_close(found, expected, rtol=100 * EPS, atol=50 * EPS * (what == "log_prob"))
    ours, theirs = (_gradients(each, head, hidden) for each in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1000 * EPS, atol=100 * EPS)


@every_head
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_second_derivatives_are_refused_not_wrong(name: str, reduction: Any, make: Make) -> None:
    head, hidden = make(name), torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    loss = head.nll(hidden, torch.tensor([0, 1, 2]), reduction=reduction).sum()
    with pytest.raises(ConfigurationError, match="first derivatives only"):
        torch.autograd.grad(loss, hidden, create_graph=True)


@every_head
@pytest.mark.parametrize("reduction", ["sum", "none"])
@pytest.mark.parametrize("block_bytes", [1, 3 * 3 * 7 * 8, 10**6])
def test_block_size_changes_nothing(name: str, reduction: Any, block_bytes: int, make: Make, monkeypatch: Any) -> None:
    head, targets = make(name), torch.randint(7, (10,))
    hidden = torch.randn(10, 5, dtype=torch.float64, requires_grad=True)
    before = head.nll(hidden, targets, reduction=reduction)
    expected = [before, *_gradients(before, head, hidden)]
    blocks = _with_block_bytes(block_bytes, monkeypatch)
    after = head.nll(hidden, targets, reduction=reduction)
    torch.testing.assert_close([after, *_gradients(after, head, hidden)], expected, rtol=20 * EPS, atol=20 * EPS)
    assert max(blocks) <= max(block_bytes, 4 * 7 * 8)


def _with_block_bytes(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let heads work in smaller blocks; return the list that will hold the bytes of each block of logits."""
    seen: list[int] = []

    def logits(*args: Any) -> Tensor:
        made = make_logits(*args)
        seen.append(made.nbytes)
        return made

    make_logits = blocked._logits
    monkeypatch.setattr(blocked, "_logits", logits)
    monkeypatch.setattr(blocked, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(blocked, "BLOCK_ROWS", 1)
    return seen


@every_head
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_extreme_logits(name: str, dtype: torch.dtype, make: Make) -> None:
    """Logits of ±10⁴: no infinity and no NaN, in values or gradients, and the loss is still −log P."""
    head = make(name, vocab=40, size=3).to(dtype)
    with torch.no_grad():
        head.weight.mul_(1e4 / head.weight.abs().max())
    hidden = (5 * torch.randn(60, 5)).to(dtype).requires_grad_()
    log_prob = head.log_prob(hidden)
    assert (log_prob.min() < -1e4) == (name not in BOUNDED)
    assert log_prob.max() <= torch.finfo(dtype).eps
    torch.testing.assert_close(log_prob.exp().sum(-1), torch.ones(60, dtype=dtype), rtol=0, atol=1e-6)
    for targets, reduction in product((log_prob.argmax(-1), log_prob.argmin(-1)), ("sum", "none")):
        loss = head.nll(hidden, targets, reduction=reduction)
        expected = _loss(head.log_prob(hidden), targets, reduction)
        torch.testing.assert_close(loss, expected, rtol=100 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)
        assert all(gradient.isfinite().all() for gradient in _gradients(loss, head, hidden))


@every_head
def test_nan_comes_out_as_nan(name: str, make: Make) -> None:
    """Training that diverged must show in the loss, and not end in an index error."""
    head, hidden = make(name), torch.full((3, 5), float("nan"), dtype=torch.float64, requires_grad=True)
    loss = head.nll(hidden, torch.tensor([0, 1, 2]))
    loss.backward()
    assert loss.isnan()
    assert head.log_prob(hidden).isnan().all()


@every_head
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_kept_graph_gives_the_gradients_again(name: str, reduction: Any, make: Make) -> None:
    head, targets = make(name), torch.randint(7, (4,))
    hidden = torch.randn(4, 5).double().requires_grad_()
    loss = head.nll(hidden, targets, reduction=reduction).sum()
    learned = [hidden, *(parameter for parameter in head.parameters() if parameter.requires_grad)]
    first = torch.autograd.grad(loss, learned, retain_graph=True)
    again = torch.autograd.grad(loss, learned, torch.tensor(2.0).double())
    torch.testing.assert_close(again, tuple(2 * each for each in first), rtol=1000 * EPS, atol=100 * EPS)


def test_the_gradient_of_the_embeddings_is_held_once() -> None:
    """It is as large as W, which for GPT-2 is a quarter of what its own cross entropy needs."""
    head = heads.Softmax(hidden_size=blocked.THIN + 1, vocab_size=90)
    hidden, targets = torch.randn(4, blocked.THIN + 1), torch.randint(90, (4,))
    weight = head.get_parameter("weight")
    as_large: dict[int, Tensor] = {}  # kept, so that no address is used twice

    def note(operation: Any, args: Any, result: Tensor) -> None:
        if result.numel() == weight.numel():
            as_large.setdefault(result.untyped_storage().data_ptr(), result)

    with Watching(note):
        (0.5 * head.nll(hidden, targets)).backward()
    assert {*as_large} - {weight.untyped_storage().data_ptr()} == {weight.grad.untyped_storage().data_ptr()}


@every_head
def test_no_gradient_is_made_where_none_is_wanted(name: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    head, hidden, targets = make(name), torch.randn(4, 5).double(), torch.randint(7, (4,))
    expected = [head.nll(hidden, targets, reduction=reduction) for reduction in ("mean", "sum", "none")]
    monkeypatch.delattr(blocked, "_add_linear_gradients")
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found = [head.nll(hidden, targets, reduction=reduction) for reduction in ("mean", "sum", "none")]
            assert all(map(torch.equal, found, expected))
    with pytest.raises(NameError, match="_add_linear_gradients"):
        head.nll(hidden, targets)


@every_head
def test_frozen_parameters_get_no_gradient_and_change_no_other(name: str, make: Make) -> None:
    head, hidden, targets = make(name), torch.randn(4, 5).double(), torch.randint(7, (4,))
    for reduction, (frozen, _) in product(("mean", "none"), head.named_parameters()):
        head.zero_grad()
        head.nll(hidden, targets, reduction=reduction).sum().backward()
        expected = {key: parameter.grad for key, parameter in head.named_parameters()}
        head.zero_grad()
        parameter = head.get_parameter(frozen).requires_grad_(False)
        head.nll(hidden, targets, reduction=reduction).sum().backward()
        parameter.requires_grad_()
        assert parameter.grad is None
        for key, other in head.named_parameters():
            if key != frozen:
                assert torch.equal(other.grad, expected[key])


@every_head
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_nll_holds_a_few_blocks_at_once(name: str, reduction: Any, make: Make, monkeypatch: Any) -> None:
    """Neither T × M × K nor T × M: no tensor is larger than a block, and blocks are freed."""
    contexts, vocab, block, live, peak = 500, 8000, 1 << 19, dict[int, int](), 0
    _with_block_bytes(block, monkeypatch)
    head = make(name, vocab=vocab).float()
    hidden, targets = torch.randn(contexts, 5, requires_grad=True), torch.randint(vocab, (contexts,))

    def note(operation: Any, args: Any, result: Tensor) -> None:
        nonlocal peak
        storage = result.untyped_storage()
        assert storage.nbytes() <= block
        if storage._cdata not in live:
            live[storage._cdata] = storage.nbytes()
            weakref.finalize(storage, live.pop, storage._cdata)
        peak = max(peak, sum(live.values()))

    with Watching(note):
        head.nll(hidden, targets, reduction=reduction).sum().backward()
    assert peak < contexts * vocab * 4 / 2


@every_case
def test_factors_of_the_log_linear_heads(name: str, settings: dict[str, Any], make: Make) -> None:
    """A = [H, 1, −log Z] [W, b, 1]ᵀ."""
    head = make(name, **settings)
    hidden = torch.randn(9, 5).double()
    factors = head.scores(hidden).linear
    is_one_softmax = name in ("mos", "doc") and settings.get("components") == 1
    assert (factors is not None) == (name in LOG_LINEAR or is_one_softmax)
    if factors is None:
        return
    contexts, weight, bias = (None if part is None else part.detach().numpy() for part in factors)
    assert contexts.shape == (9, head.embedding_size)
    ones = np.ones((9, 1))
    bias = np.zeros(7) if bias is None else bias
    log_partition = np.log(np.exp(contexts @ weight.T + bias).sum(1, keepdims=True))
    left = np.hstack([contexts, ones, -log_partition])
    right = np.column_stack([weight, bias, np.ones(7)])
    np.testing.assert_allclose(head.log_prob(hidden).detach().numpy(), left @ right.T, rtol=0, atol=100 * EPS)


@every_head
def test_it_is_what_the_registry_and_its_settings_say(name: str, make: Make) -> None:
    head = heads.build(name, hidden_size=5, vocab_size=7)
    assert type(head) is heads.find(name) is heads.REGISTRY[name]
    assert (head.hidden_size, head.vocab_size, head.embedding_size) == (5, 7, 5)
    assert head.weight.shape == (7, 5)
    assert head.bias is not None
    head = make(name, bias=False)
    again = heads.build(name, **head.settings)
    assert again.bias is None
    assert again.settings == head.settings
    assert {*heads.parameters(name)} <= {*head.settings} - {"hidden_size", "vocab_size"}
    shapes = [{key: value.shape for key, value in each.state_dict().items()} for each in (head, again)]
    assert shapes[0] == shapes[1]


@every_head
def test_contexts_of_zero_start_at_the_distribution_given(name: str, make: Make) -> None:
    """Also behind functions that bend and are not the identity: their logits lie where they bend, about 0."""
    head = make(name, vocab=300, **({"interval": 20.0} if "interval" in heads.parameters(name) else {})).float()
    counts = torch.arange(1, 301).double() ** -1.2  # as rare as words are
    expected = torch.log(counts / counts.sum())
    head.init_bias(expected)
    with torch.no_grad():
        head.weight.zero_()
        found = head.log_prob(torch.randn(2, 5))
    torch.testing.assert_close(found, expected.float().expand(2, -1), rtol=0, atol=1e-4)
    if name in {"sigsoftmax", "gss", "lms-plif", "lms-net"}:
        assert head.bias.min() < 0 < head.bias.max()
    head = make(name, bias=False)
    before = {key: value.clone() for key, value in head.state_dict().items()}
    head.init_bias(torch.full((7,), 1 / 7).log())
    assert all(torch.equal(value, before[key]) for key, value in head.state_dict().items())


def test_a_bounded_function_starts_where_it_still_moves(make: Make) -> None:
    """Five sigmoids of an interval narrower than the log-probabilities are wide."""
    head = make("lms-net", vocab=300, hidden_units=5, interval=1.5)
    counts = torch.arange(1, 301).double() ** -1.2
    head.init_bias(torch.log(counts / counts.sum()))
    assert head.bias.abs().max() < 10
    head.nll(torch.randn(20, 5).double(), torch.zeros(20, dtype=torch.long)).backward()
    assert head.bias.grad.abs().min() > 0


@every_head
def test_every_argument_is_shown_and_documented(name: str) -> None:
    """What an editor shows: names, types and defaults, and a line of ``Args:`` for each."""
    cls = heads.REGISTRY[name]
    arguments = inspect.signature(cls, eval_str=True).parameters
    assert list(arguments)[:2] == ["hidden_size", "vocab_size"]
    assert all(a.kind in (a.POSITIONAL_OR_KEYWORD, a.KEYWORD_ONLY) for a in arguments.values())
    assert all(a.annotation is not a.empty for a in arguments.values())
    assert all(a.default is not a.empty and a.kind is a.KEYWORD_ONLY for a in list(arguments.values())[2:])
    documented = re.findall(r"^    (\w+): \S", inspect.getdoc(cls).split("Args:\n")[1].split("\n\n")[0], re.MULTILINE)
    assert documented == list(arguments)


def test_an_argument_that_is_not_kept() -> None:
    class Forgetful(heads.Softmax):  # type: ignore[misc]
        def __init__(self, hidden_size: int, vocab_size: int, *, groups: int = 4) -> None:
            super().__init__(hidden_size, vocab_size)

    with pytest.raises(ConfigurationError, match="Forgetful must keep its argument 'groups' as an attribute"):
        _ = Forgetful(5, 7).settings
