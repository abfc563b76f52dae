"""Dropout on the components' context vectors: locked over a sequence, and only in training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from softmax_bottleneck import heads
from softmax_bottleneck.errors import ConfigurationError

HEADS: dict[str, dict[str, Any]] = {"moc": {}, "mos": {}, "mos-plif": {"knots": 50}, "doc": {}}


def _build(name: str, context_dropout: float) -> heads.Head:
    torch.manual_seed(0)
    settings = {"hidden_size": 6, "vocab_size": 9, "embedding_size": 4, "components": 3, **HEADS[name]}
    return heads.build(name, context_dropout=context_dropout, **settings).double()


@pytest.mark.parametrize("name", HEADS)
def test_it_acts_in_training_alone_and_the_loss_sees_the_same_masks(name: str) -> None:
    head, hidden, targets = _build(name, 0.5), torch.randn(7, 2, 6, dtype=torch.float64), torch.randint(9, (7, 2))
    assert not torch.equal(head.log_prob(hidden), head.log_prob(hidden))
    torch.manual_seed(3)
    loss = head.nll(hidden, targets)
    torch.manual_seed(3)
    expected = F.nll_loss(head.log_prob(hidden).flatten(0, 1), targets.flatten())
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(head.eval().log_prob(hidden), _build(name, 0.0).log_prob(hidden))


def test_a_sequence_has_one_mask_for_each_component_and_text() -> None:
    head, hidden = _build("mos", 0.5), torch.randn(7, 2, 6, dtype=torch.float64)
    dropped = head.scores(hidden).factors[0].contexts == 0
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))
    assert not torch.equal(dropped[0, 0], dropped[0, 1])
    assert not torch.equal(dropped[0, 0, 0], dropped[0, 0, 1])


@pytest.mark.parametrize("wrong", [1.0, -0.1, float("nan")])
def test_no_probability(wrong: float) -> None:
    with pytest.raises(ConfigurationError, match=r"context_dropout must be in \[0, 1\), not"):
        _build("mos", wrong)
