"""A backbone and a head together, and the configuration that names them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from softmax_bottleneck import heads
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.language_models.model import LanguageModel, ModelConfig

BACKBONE = {"name": "lstm", "embedding_size": 3, "hidden_size": 4, "layers": 1, "dropout": 0.0}


def _model(name: str = "softmax", *, tied: bool = True, **settings: Any) -> LanguageModel:
    head = {"name": name, "embedding_size": 3, **({"knots": 10} if name == "lms-plif" else {}), **settings}
    config = ModelConfig.model_validate({"backbone": BACKBONE, "head": head, "tie_embeddings": tied})
    return LanguageModel(config, vocab_size=11)


@pytest.mark.parametrize("name", heads.REGISTRY)
@pytest.mark.parametrize("tied", [True, False])
def test_it_is_its_parts_one_after_the_other(name: str, tied: bool) -> None:
    torch.manual_seed(0)
    model = _model(name, tied=tied).eval()
    ids = torch.randint(11, (6, 2))
    hidden, state = model.hidden(ids)
    expected, after = model.backbone(ids, model.backbone.initial_state(2))
    assert torch.equal(hidden, expected)
    assert all(map(torch.equal, state, after))
    further, _ = model.hidden(ids, state)
    assert torch.equal(further, model.backbone(ids, after)[0])
    assert model.head.log_prob(hidden).shape == (6, 2, 11)
    assert (model.head.weight is model.backbone.embedding.weight) == tied


def test_tied_embeddings_get_both_gradients() -> None:
    torch.manual_seed(0)
    tied, apart = _model().double(), _model(tied=False).double()
    apart.load_state_dict(tied.state_dict())
    ids = torch.randint(11, (6, 2))
    for model in (tied, apart):
        model.head.nll(model.hidden(ids[:-1])[0], ids[1:]).backward()
    assert apart.head.weight.grad is not None
    both = apart.backbone.embedding.weight.grad + apart.head.weight.grad
    torch.testing.assert_close(tied.backbone.embedding.weight.grad, both)


def test_the_size_of_the_output_embeddings() -> None:
    """By default that of the input's, which must be equal, when they are tied, and else that of the hidden states."""
    with pytest.raises(ConfigurationError, match=r"\(11, 3\), the output's \(11, 5\).*tie_embeddings=false"):
        _model(embedding_size=5)
    assert _model(embedding_size=5, tied=False).head.embedding_size == 5
    for tied, size in ((True, 3), (False, 4)):
        config = ModelConfig.model_validate({"backbone": BACKBONE, "tie_embeddings": tied})
        assert LanguageModel(config, vocab_size=11).head.embedding_size == size
        assert config.head.settings == {}
