"""DOC: its layers, its penalty, and how a language model hands it all layers' hidden states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.heads import DOC, Head
from softmax_bottleneck.language_models.model import LanguageModel, ModelConfig

Make = Callable[..., Head]


def _model(layers: int = 3, **head: Any) -> LanguageModel:
    backbone = {"name": "lstm", "embedding_size": 3, "hidden_size": 4, "layers": layers, "dropout": 0.0}
    config = ModelConfig.model_validate({"backbone": backbone, "head": {"name": "doc", **head}})
    return LanguageModel(config, vocab_size=11)


def _penalty_by_hand(head: Any, hidden: torch.Tensor) -> float:
    """As the authors' code has it: (K − 1) · var(S) / mean(S)² of the priors' sums S over time, with Bessel's n − 1."""
    logits = hidden[..., -head.layer_sizes[-1] :].numpy() @ head.mixture.projection.weight.detach().numpy().T
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    sums = weights.sum(0)
    return float((sums.shape[-1] - 1) * sums.var(ddof=1) / sums.mean() ** 2)


@pytest.mark.parametrize("shape", [(6, 4, 5), (6, 1, 5), (6, 5)])
def test_penalty_is_that_of_the_authors_code(shape: tuple[int, ...], make: Make) -> None:
    """Each text has its own sums over time; the spread is that of all texts' components."""
    head: Any = make("doc", prior_penalty=0.25)
    hidden = torch.randn(shape, dtype=torch.float64)
    assert head.penalty(hidden).item() == pytest.approx(0.25 * _penalty_by_hand(head, hidden), rel=1e-13)
    assert DOC(hidden_size=4, vocab_size=7, components=1).penalty(torch.randn(*shape[:-1], 4)) == 0
    assert make("mos").penalty(hidden) is None


def test_a_text_has_one_mask_for_all_components_of_all_layers() -> None:
    """The same entries of all context vectors are dropped, at all steps."""
    torch.manual_seed(0)
    settings = {"hidden_size": 9, "layer_sizes": (4, 5), "vocab_size": 7, "embedding_size": 40, "components": (3, 2)}
    head, plain = (DOC(**settings, context_dropout=rate) for rate in (0.6, 0.0))
    plain.load_state_dict(head.state_dict())
    hidden = torch.randn(6, 3, 9)
    contexts, whole = (each.scores(hidden).factors[0].contexts for each in (head, plain))
    dropped = contexts == 0
    assert torch.equal(dropped, dropped[:1, :, :1].expand_as(dropped))
    assert not torch.equal(dropped[0, 0], dropped[0, 1])
    torch.testing.assert_close(contexts, torch.where(dropped, 0.0, whole / 0.4))
    assert torch.equal(head.eval().scores(hidden).factors[0].contexts, whole)


def test_penalty_has_gradients_and_vanishes_for_even_use(make: Make) -> None:
    head: Any = make("doc", prior_penalty=0.25)
    hidden = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    weight = head.mixture.projection.weight
    assert torch.autograd.gradcheck(lambda hidden, _: head.penalty(hidden), (hidden, weight))
    torch.nn.init.zeros_(weight)
    assert head.penalty(hidden).item() == 0


@pytest.mark.parametrize(
    ("components", "counts"), [(None, (15, 5)), (4, (4,)), ([2, 0, 1], (2, 0, 1)), ((0, 3), (0, 3))]
)
def test_components_by_layer(components: Any, counts: tuple[int, ...]) -> None:
    head = DOC(hidden_size=9, layer_sizes=(2, 3, 4), vocab_size=7, embedding_size=5, components=components)
    assert head.component_counts == counts
    contexts: Any = head.contexts
    assert {int(layer): part.components for layer, part in contexts.layers.items()} == {
        2 - place: count for place, count in enumerate(counts) if count
    }
    assert head.log_prob(torch.randn(6, 9)).exp().sum(-1).tolist() == pytest.approx([1.0] * 6, abs=1e-5)


def test_a_language_model_hands_over_all_layers() -> None:
    model = _model(components=[2, 0, 1])
    assert model.backbone.layer_sizes == (4, 4, 4)
    assert model.head.hidden_size == 12
    hidden, _ = model.hidden(torch.randint(11, (6, 2)))
    assert hidden.shape == (6, 2, 12)
    model.head.nll(hidden, torch.randint(11, (6, 2))).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    with pytest.raises(ConfigurationError, match="at most as many layers as it gets, 2, some"):
        _model(layers=2, components=[1, 1, 1])
