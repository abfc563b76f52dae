"""Context encoders, one file each."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigurationError
from .awd_lstm import AWDLSTM, AWDLSTMConfig
from .base import Backbone, Encoding, State
from .lstm import LSTM, LSTMConfig

REGISTRY: dict[str, type[LSTM] | type[AWDLSTM]] = {"lstm": LSTM, "awd-lstm": AWDLSTM}


def find(name: str) -> type[LSTM] | type[AWDLSTM]:
    """Return the class registered under ``name``; `ConfigurationError` lists the known ones."""
    if name not in REGISTRY:
        raise ConfigurationError(f"unknown backbone {name!r}; known backbones are {', '.join(REGISTRY)}")
    return REGISTRY[name]


def build(name: str, *, vocab_size: int, all_layers: bool = False, **settings: Any) -> Backbone:
    """Return a new backbone with the given settings of its configuration class.

    With ``all_layers`` its hidden states are those of all layers side by side, the first layer first.
    """
    cls = find(name)
    return cls(cls.Config(**settings), vocab_size=vocab_size, all_layers=all_layers)  # type: ignore[arg-type]


__all__ = [
    "AWDLSTM",
    "LSTM",
    "REGISTRY",
    "AWDLSTMConfig",
    "Backbone",
    "Encoding",
    "LSTMConfig",
    "State",
    "build",
    "find",
]
