"""A loss over some of a step's predictions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from softmax_bottleneck.language_models.model import LanguageModel, ModelConfig
from softmax_bottleneck.training import RunConfig
from softmax_bottleneck.training.objective import Objective

DRAWS = 200


def test_the_loss_of_drawn_predictions_has_the_mean_of_all(configure: Callable[..., RunConfig]) -> None:
    """Loss and gradient, within five standard errors; every loss of one drawn prediction is that of one token."""
    torch.manual_seed(0)
    model = LanguageModel(configure(dropout=0.0).model, vocab_size=12)
    ids = torch.randint(12, (7, 3), generator=torch.Generator().manual_seed(1))
    state = model.backbone.initial_state(3)
    bias = model.head.bias
    assert bias is not None
    with torch.no_grad():
        hidden, _ = model.hidden(ids[:-1], state)
        each = -model.head.log_prob(hidden).gather(-1, ids[1:, :, None]).ravel()
    whole, _, _ = Objective(model)(ids[:-1], ids[1:], state)
    (gradient,) = torch.autograd.grad(whole, [bias])
    for fraction, count in ((0.01, 1), (0.5, 9)):
        objective = Objective(model, fraction=fraction)
        losses, gradients = [], []
        for _ in range(DRAWS):
            loss, nll, _ = objective(ids[:-1], ids[1:], state)
            assert nll == loss
            losses.append(loss.detach())
            gradients.append(torch.autograd.grad(loss, [bias])[0])
        drawn, slopes = torch.stack(losses), torch.stack(gradients)
        if count == 1:
            assert (drawn[:, None] - each).abs().min(1).values.max() < 1e-5
            assert len(drawn.round(decimals=4).unique()) == len(each.round(decimals=4).unique())
        expected = each.std() / count**0.5 * (1 - count / len(each)) ** 0.5  # drawn without replacement
        assert 0.8 < drawn.std() / expected < 1.2
        assert abs(drawn.mean() - whole.detach()) < 5 * drawn.std() / DRAWS**0.5
        assert ((slopes.mean(0) - gradient).abs() < 5 * slopes.std(0) / DRAWS**0.5 + 1e-7).all()


def test_each_text_has_its_own_mask() -> None:
    settings = {
        "tie_embeddings": False,
        "backbone": {"name": "lstm", "embedding_size": 8, "hidden_size": 8, "layers": 1, "dropout": 0.0},
        "head": {"name": "mos", "components": 1, "embedding_size": 100, "context_dropout": 0.5},
    }
    model = LanguageModel(ModelConfig.model_validate(settings), vocab_size=50).train()
    dropped: list[Tensor] = []
    model.head.get_submodule("contexts").register_forward_hook(lambda module, given, out: dropped.append(out == 0))
    ids = torch.randint(50, (21, 6))
    Objective(model, fraction=0.5)(ids[:-1], ids[1:], model.backbone.initial_state(6))
    assert len(torch.unique(dropped[0].reshape(-1, 100), dim=0)) == 6
