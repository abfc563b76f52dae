"""Output layers of every kind of source, and the tokens that they can never predict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from softmax_bottleneck import argmaxable
from softmax_bottleneck.errors import SourceError
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.theory import unargmaxable


@pytest.mark.parametrize("head", ["softmax", "moc", "sigsoftmax", "lms-plif"])
def test_heads_with_one_softmax(runs: dict[str, Path], head: str) -> None:
    """Each witness makes the head itself predict the token, through its own function of the logits."""
    source = open_source(runs[head], dtype="float64")
    report = argmaxable(source)
    layer = source.head
    assert (report.vocab, report.dimension) == tuple(layer.weight.shape)
    np.testing.assert_array_equal(report.unargmaxable, unargmaxable(layer.weight, layer.bias).unargmaxable)
    tokens = np.flatnonzero(np.isfinite(report.margins))
    contexts = torch.from_numpy(report.contexts[tokens])
    logits = contexts @ layer.weight.double().T + layer.bias.double()
    function = getattr(layer, "function", None)
    with torch.no_grad():
        logits = logits if function is None else function(logits)
    assert torch.equal(logits.argmax(1), torch.from_numpy(tokens))


def test_what_has_no_single_softmax(runs: dict[str, Path], log_probs: Callable[..., NDArray[np.float64]]) -> None:
    with pytest.raises(SourceError, match="has a mos head: the argmax of a mixture"):
        argmaxable(open_source(runs["mos"]))
    with pytest.raises(SourceError, match="array is not an output layer: give a model, or W"):
        argmaxable(open_source(log_probs()))
