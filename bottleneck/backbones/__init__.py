"""Context encoders, one file each."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigurationError
from .base import Backbone, State
from .lstm import LSTM, LSTMConfig

REGISTRY: dict[str, type[LSTM]] = {"lstm": LSTM}


def find(name: str) -> type[LSTM]:
    """Return the class registered under ``name``; `ConfigurationError` lists the known ones."""
    if name not in REGISTRY:
        raise ConfigurationError(f"unknown backbone {name!r}; known backbones are {', '.join(REGISTRY)}")
    return REGISTRY[name]


def build(name: str, *, vocab_size: int, all_layers: bool = False, **settings: Any) -> Backbone:
    """Return a new backbone with the given settings of its configuration class.

    With ``all_layers`` its hidden states are those of all layers side by side, the first layer first.
    """
    cls = find(name)
    return cls(cls.Config(**settings), vocab_size=vocab_size, all_layers=all_layers)


__all__ = ["LSTM", "REGISTRY", "Backbone", "LSTMConfig", "State", "build", "find"]
