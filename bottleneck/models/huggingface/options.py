"""How a Hugging Face model is read."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ConfigurationError

DEFAULT_CONTEXT_LENGTH = 1024
"""Tokens of a window when the model can take more: GPT-2's, and the cost of attention grows with it."""
TOKENS_AT_ONCE = 4096
"""Of a batch of windows, when nobody says otherwise."""
VOCABULARIES = ("both", "model", "tokenizer")
BOS = ("auto", "on", "off")


@dataclass(frozen=True, kw_only=True)
class HuggingFaceOptions:
    """How a Hugging Face model is read."""

    revision: str | None = None
    """Branch, tag or commit on the hub."""
    context_length: int | None = None
    """Tokens of a window, those before the text among them; by default the model's own limit, at most
    `DEFAULT_CONTEXT_LENGTH`."""
    stride: int | None = None
    """Tokens between the starts of windows; by default half a window. Each context has length − stride + 1 or more."""
    bos: str = "auto"
    """Whether every window begins with what the tokenizer puts before a text, or says it does (``add_bos_token``):
    ``"auto"`` for whenever that is anything, ``"on"`` for its beginning-of-sequence token otherwise, ``"off"`` for the
    text alone."""
    batch_size: int | None = None
    """Windows encoded at once; by default about `TOKENS_AT_ONCE` tokens."""
    vocab: str = "both"
    """Whose tokens are the columns where the output layer is padded: ``"model"``, ``"tokenizer"``, or ``"both"``."""
    precise: bool = False
    """Whether the output layer is computed in float64 instead of float32."""
    dataset: str | None = None
    """A data set of the hub, ``NAME`` or ``NAME:CONFIGURATION``, instead of a corpus."""
    allow_pickle: bool = False
    """Whether pickled weights may be read: numbers only, no code."""

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        if self.vocab not in VOCABULARIES:
            raise ConfigurationError(f"unknown vocabulary {self.vocab!r}; it is one of {', '.join(VOCABULARIES)}")
        if self.bos not in BOS:
            raise ConfigurationError(f"unknown bos {self.bos!r}; it is one of {', '.join(BOS)}")
        for name in ("context_length", "stride", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {value}")
