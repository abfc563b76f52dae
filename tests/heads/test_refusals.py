"""Settings and arguments that no head takes, and the sentence for each."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
import torch

from softmax_bottleneck import heads
from softmax_bottleneck.errors import ConfigurationError

SIZES = {"hidden_size": 5, "vocab_size": 7}
COUNTS = {"embedding_size", "components", "knots", "hidden_units", "gate_size"}
SETTINGS: list[tuple[str, dict[str, Any], str]] = [
    ("sofmax", {}, "unknown head 'sofmax'; known heads are softmax, moc, mos"),
    *((name, {"compnents": 3}, "has no setting 'compnents'; its settings are hidden_size") for name in heads.REGISTRY),
    ("gss", {"k": 0.0}, "finite c and k > 0, not c = -1.5, k = 0.0"),
    ("gss", {"c": inf}, "finite c and k > 0, not c = inf"),
    ("mixtape", {"components": 1}, "a power of two from 2, not 1"),
    ("mixtape", {"components": 6}, "a power of two from 2, not 6"),
    ("mos", {"residual": True, "embedding_size": 3}, "residual context vectors have the size .* states, 5, not"),
    *(("mos", {"context_dropout": p}, r"context_dropout must be in \[0, 1\), not") for p in (1.0, -0.1, nan)),
    *(("lms-net", {"interval": value}, "finite interval > 0, not") for value in (0.0, -1.0, nan, inf)),
    ("lms-plif", {"knots": (1 << 24) + 1}, "at most 2²⁴ knots, not 16777217"),
    *(("lms-plif", {"interval": value}, "finite interval > 0 and noise ≥ 0") for value in (0.0, -1.0, nan, inf)),
    *(("lms-plif", {"noise": value}, "finite interval > 0 and noise ≥ 0") for value in (-0.1, nan)),
    *(("lms-plif", {"slope_learning_rate": value}, "must be above 0") for value in (0.0, -1.0, nan, inf)),
    *(("doc", {"layer_sizes": sizes}, "layer_sizes that sum to hidden_size = 5, not") for sizes in ((2, 2), (0, 5))),
    (
        "doc",
        {"layer_sizes": (2, 3), "components": (1, 1, 1)},
        r"at most as many layers as it gets, 2, .* \[1, 1, 1\]",
    ),
    ("doc", {"layer_sizes": (2, 3), "components": (0, 0)}, r"some positive and none negative, not \[0, 0\]"),
    ("doc", {"layer_sizes": (2, 3), "components": (1, -1)}, r"some positive and none negative, not \[1, -1\]"),
    ("doc", {"prior_penalty": -1.0}, "prior_penalty must be at least 0, not -1.0"),
]


@pytest.mark.parametrize(("name", "settings", "sentence"), SETTINGS)
def test_settings(name: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        heads.build(name, **SIZES, **settings)


@pytest.mark.parametrize("name", heads.REGISTRY)
def test_sizes_are_needed(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r" needs hidden_size and vocab_size"):
        heads.build(name)


@pytest.mark.parametrize("name", heads.REGISTRY)
def test_counts_begin_at_one_and_other_settings_at_zero(name: str) -> None:
    for key in {*SIZES, *heads.parameters(name)} & {*SIZES, *COUNTS}:
        for value in (0, -3):
            with pytest.raises(ConfigurationError, match=f"{key} must be at least 1, not {value}"):
                heads.build(name, **{**SIZES, key: value})
    for key in {"c", "noise", "context_dropout", "prior_penalty"} & set(heads.parameters(name)):
        heads.build(name, **{**SIZES, key: 0})


HIDDEN, IDS = torch.ones(2, 5).double(), torch.tensor([0, 1])
CALLS: list[tuple[str, tuple[Any, ...], str]] = [
    *(("nll", (HIDDEN, torch.tensor([0, y])), f"target {y} is not one of the token ids 0 to 6") for y in (-1, 7, -100)),
    ("nll", (HIDDEN, torch.zeros(2)), r"of type int64, not torch\.float32"),
    # (5, 2) targets beside (2, 5) hidden states hold as many ids, in another order.
    ("nll", (HIDDEN[:, None].expand(2, 5, 5), IDS.expand(5, 2)), r"need targets of shape \(2, 5\), not \(5, 2\)"),
    ("tie", (torch.nn.Embedding(7, 4),), r"input's are \(7, 4\).*\(7, 5\).*tie_embeddings"),
    ("tie", (torch.nn.Embedding(8, 5),), r"input's are \(8, 5\).*\(7, 5\).*tie_embeddings"),
    ("log_prob", (HIDDEN[:, :4],), r"takes hidden states of size 5, not shape \(2, 4\)"),
    ("nll", (HIDDEN[:, :4], IDS), r"takes hidden states of size 5, not shape \(2, 4\)"),
    # Hidden states of another type would be multiplied in that type, and no one would know.
    *(
        (method, (HIDDEN.to(dtype), *rest), rf"is in torch\.float64 and takes .*, not {dtype}: ")
        for dtype in (torch.float32, torch.bfloat16, torch.int64)
        for method, rest in (("log_prob", ()), ("nll", (IDS,)))
    ),
]


@pytest.mark.parametrize(("method", "arguments", "sentence"), CALLS)
@pytest.mark.parametrize("name", ["softmax", "mos", "lms-plif", "mixtape"])
def test_arguments(name: str, method: str, arguments: tuple[Any, ...], sentence: str) -> None:
    head = heads.build(name, **SIZES).double()
    with pytest.raises(ConfigurationError, match=sentence):
        getattr(head, method)(*arguments)
    with pytest.raises(ConfigurationError, match="unknown reduction 'average'; known reductions are mean, sum, none"):
        head.nll(HIDDEN, IDS, reduction="average")  # type: ignore[arg-type]
