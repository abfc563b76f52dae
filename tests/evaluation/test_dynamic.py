"""Dynamic evaluation against the paper's rule, weight by weight; nothing is dropped and nothing is left changed."""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from softmax_bottleneck import perplexity
from softmax_bottleneck.core.progress import StreamProgress
from softmax_bottleneck.errors import ConfigurationError, TrainingError
from softmax_bottleneck.evaluation import Dynamic, dynamic, dynamic_evaluate, gradient_statistics
from softmax_bottleneck.language_models.checkpoint import load
from softmax_bottleneck.language_models.model import LanguageModel

from .conftest import AWD, LSTM

Build = Callable[..., LanguageModel]
Ids = NDArray[np.int64]
BATCHES = 4
"""Those of five tokens in seven columns of the text."""


def _weights(model: LanguageModel) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def _gradients(model: LanguageModel, inputs: torch.Tensor, targets: torch.Tensor, state: Any) -> Any:
    """The loss by gathering, its gradients by autograd, and the state after it."""
    hidden, state = model.hidden(inputs, state)
    loss = -model.head.log_prob(hidden).gather(2, targets.unsqueeze(2)).mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return loss.item(), gradients, tuple(part.detach() for part in state)


@pytest.mark.parametrize("backbone", [AWD, LSTM], ids=["awd-lstm", "lstm"])
def test_the_statistics_by_hand(backbone: dict[str, Any], build: Build, text: Ids) -> None:
    model = build(backbone)
    found = gradient_statistics(model.train(), text, batch_size=7)
    rows = len(text) // 7
    data = torch.tensor([[text[column * rows + row] for column in range(7)] for row in range(rows)])
    model.eval()
    squares, state, count = [torch.zeros_like(weight) for weight in model.parameters()], None, 0
    for start in range(0, rows - 1, 5):
        targets = data[start + 1 : start + 6]
        _, gradients, state = _gradients(model, data[start : start + len(targets)], targets, state)
        squares = [total + gradient**2 for total, gradient in zip(squares, gradients, strict=True)]
        count += 1
    assert count == BATCHES
    for (name, _), total in zip(model.named_parameters(), squares, strict=True):
        torch.testing.assert_close(found[name], total, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scaling", ["sum", "mean"])
@pytest.mark.parametrize("backbone", [AWD, LSTM], ids=["awd-lstm", "lstm"])
def test_the_rule_by_hand(backbone: dict[str, Any], scaling: Any, build: Build, text: Ids) -> None:
    """Krause et al. 2018, eq. 5 to 8, one parameter after the other, in the units of the MoS authors' code and in those
    that they print; the decay is large enough to be clipped."""
    model = build(backbone)
    tensors = len(list(model.parameters()))
    rate, decay, epsilon, bptt = 0.05, 0.6 * (tensors if scaling == "sum" else 1), 0.01, 5
    kept = gradient_statistics(model, text, batch_size=7)
    before = _weights(model)
    root, count = (1, 1) if scaling == "sum" else (math.sqrt(BATCHES), tensors)  # the rates in our units
    settings = Dynamic(learning_rate=root * rate, decay=count * decay, epsilon=root * epsilon, bptt=bptt)
    for number, part in enumerate(model.modules()):
        part.training = number % 2 == 0  # such as a frozen layer's
    found = dynamic_evaluate(model, text, kept, settings)
    assert [part.training for part in model.modules()] == [n % 2 == 0 for n, _ in enumerate(model.modules())]
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert all(weight.grad is None for weight in model.parameters())

    model.eval()
    factor = 1 if scaling == "sum" else 1 / BATCHES
    roots = {name: np.sqrt(factor * square.numpy()) for name, square in kept.items()}
    usual = sum(root.mean() for root in roots.values()) / (1 if scaling == "sum" else tensors)
    clipped = {name: np.minimum(root / usual, 1 / decay) for name, root in roots.items()}
    assert any((values == 1 / decay).any() for values in clipped.values())
    ids, total, state = torch.from_numpy(text).unsqueeze(1), 0.0, None
    for start in range(0, len(text) - 1, bptt):
        targets = ids[start + 1 : start + 1 + bptt]
        loss, gradients, state = _gradients(model, ids[start : start + len(targets)], targets, state)
        total += loss * len(targets)
        for (name, weight), gradient in zip(model.named_parameters(), gradients, strict=True):
            old = weight.detach().numpy()
            step = decay * clipped[name] * (before[name].numpy() - old) - rate * gradient.numpy() / (
                roots[name] + epsilon
            )
            with torch.no_grad():
                weight.copy_(torch.from_numpy(old + step))
    assert found.loss == pytest.approx(total / (len(text) - 1), rel=1e-9)
    assert found.tokens == len(text) - 1


def test_what_is_refused_and_weights_come_back_after_a_fault(build: Build, text: Ids) -> None:
    model = build()
    kept = gradient_statistics(model, text, batch_size=7)
    before = _weights(model)
    for wrong in ({"learning_rate": 0.0}, {"epsilon": 0.0}, {"decay": -0.1}, {"decay": math.inf}, {"bptt": 0}):
        with pytest.raises(ConfigurationError, match="dynamic evaluation needs"):
            Dynamic(**wrong)
    assert gradient_statistics(model, text[:21], batch_size=100)  # a text shorter than the batch has fewer columns
    with pytest.raises(TrainingError, match="the training text has 1 tokens"):
        gradient_statistics(model, text[:1])
    with pytest.raises(TrainingError, match="a text of 1 tokens cannot be scored"):
        dynamic_evaluate(model, text[:1], kept)
    for rate in (1e6, 1e308):
        with pytest.raises(TrainingError, match=r"diverged by token \d+: lower learning_rate \(now 1e\+.* epsilon"):
            dynamic_evaluate(model, text, kept, Dynamic(learning_rate=rate, epsilon=1e-8))
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_the_file_spares_the_second_pass(
    tmp_path: Path, build: Build, text: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, file = build().float(), tmp_path / "statistics.safetensors"
    first = gradient_statistics(model, text, batch_size=7, file=file, identity="one")
    segments, calls = dynamic.bptt_segments, []
    monkeypatch.setattr(dynamic, "bptt_segments", lambda *a, **k: (calls.append(1), segments(*a, **k))[1])

    def again(**changed: Any) -> tuple[dict[str, torch.Tensor], bool]:
        calls.clear()
        settings = {"batch_size": 7, "file": file, "identity": "one", **changed}
        return gradient_statistics(model, text, **settings), bool(calls)

    read, computed = again()
    assert not computed
    torch.testing.assert_close(read, first, rtol=0, atol=0)
    assert again(identity="two")[1]
    assert again(batch_size=5)[1]
    for damaged in (file.read_bytes()[:100], file.read_bytes()[:-1] + b"\x7f"):  # cut, or a number of the last tensor
        file.write_bytes(damaged)
        assert again()[1]
        assert not again()[1]
    told = io.StringIO()
    gradient_statistics(model, text, batch_size=7, file=tmp_path / "no" / "folder", progress=StreamProgress(told))
    assert "the gradient statistics are not kept" in told.getvalue()


def test_the_statistics_are_those_of_the_weights_in_memory(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs["mos"], folder)
    expected = perplexity(folder, how="dynamic").perplexity
    edited = load(folder)
    with torch.no_grad():
        edited.model.head.weight.mul_(3.0)
    changed = perplexity(edited, how="dynamic").perplexity
    assert changed != expected
    assert perplexity(folder, how="dynamic").perplexity == expected
    assert perplexity(edited, how="dynamic").perplexity == changed


def test_it_is_made_in_full_precision(build: Build, text: Ids) -> None:
    model = build(LSTM).float()
    statistics = gradient_statistics(model, text, batch_size=7)
    expected = dynamic_evaluate(model, text, statistics)
    with torch.autocast("cpu", torch.bfloat16):
        again = gradient_statistics(model, text, batch_size=7)
        assert dynamic_evaluate(model, text, statistics) == expected
    assert all(torch.equal(again[name], squares) for name, squares in statistics.items())
