"""Context encoders, one file each."""

from __future__ import annotations

from typing import Any

from ...core import plugins
from .awd_lstm import AWDLSTM, AWDLSTMConfig
from .base import Backbone, Encoding, State
from .encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from .lstm import LSTM, LSTMConfig

REGISTRY: dict[str, type[Backbone]] = {"lstm": LSTM, "awd-lstm": AWDLSTM, "encoder-decoder": EncoderDecoder}


def find(name: str) -> type[Backbone]:
    """Return the class registered under ``name``, here or by an installed package; see docs/extending.md.

    Raises:
        ConfigurationError: for an unknown name; the text lists the known ones.
    """
    backbone: type[Backbone] = plugins.find_class("backbones", name, Backbone, REGISTRY, "backbone")
    return backbone


def build(name: str, *, vocab_size: int, all_layers: bool = False, **settings: Any) -> Backbone:
    """Return a new backbone with the given settings of its configuration class.

    With ``all_layers`` its hidden states are those of all layers side by side, the first layer first.
    """
    cls = find(name)
    return cls(cls.Config(**settings), vocab_size=vocab_size, all_layers=all_layers)


__all__ = [
    "AWDLSTM", "LSTM", "REGISTRY", "AWDLSTMConfig", "Backbone", "EncoderDecoder", "EncoderDecoderConfig", "Encoding",
    "LSTMConfig", "State", "build", "find",
]  # fmt: skip
