"""A small trained model, its text, and a text that repeats itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softmax_bottleneck.language_models.model import LanguageModel, ModelConfig

M = 9
AWD: dict[str, Any] = {
    "name": "awd-lstm",
    "embedding_size": 4,
    "hidden_sizes": [6, 5],
    "dropout_embedding": 0.3,
    "weight_drop": 0.5,
}
LSTM: dict[str, Any] = {"name": "lstm", "embedding_size": 4, "hidden_size": 5, "layers": 2, "dropout": 0.5}


@pytest.fixture(autouse=True)
def _repeatable(repeatable: None) -> None:
    """Repeat random numbers in every test of this folder."""


@pytest.fixture
def build() -> Callable[..., LanguageModel]:
    """A model in float64, by its backbone's settings."""

    def build(backbone: dict[str, Any] = AWD, head: str = "mos") -> LanguageModel:
        settings = {"name": head, "embedding_size": 4} | ({"components": 2} if head == "mos" else {})
        config = ModelConfig.model_validate({"backbone": backbone, "head": settings})
        return LanguageModel(config, vocab_size=M).double()

    return build


@pytest.fixture
def text() -> NDArray[np.int64]:
    """Words that follow each other by one or two."""
    return np.cumsum(np.random.default_rng(0).integers(1, 3, 120)) % M
