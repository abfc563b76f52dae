"""The options of Hugging Face models."""

from __future__ import annotations

from dataclasses import dataclass

from ...checks import check_positive
from ...errors import ConfigurationError

DEFAULT_CONTEXT_LENGTH = 1024
"""Tokens of a window if the model can take more: the limit of GPT-2, because the cost of attention grows with it."""
TOKENS_AT_ONCE = 4096
"""Default number of tokens of a batch of windows."""
VOCABULARIES = ("both", "model", "tokenizer")
BOS = ("auto", "on", "off")


@dataclass(frozen=True, kw_only=True)
class HuggingFaceOptions:
    """Options of Hugging Face models and their texts."""

    revision: str | None = None
    """Branch, tag or commit on the hub."""
    context_length: int | None = None
    """Tokens of a window, including special tokens; by default the model's limit, at most `DEFAULT_CONTEXT_LENGTH`."""
    stride: int | None = None
    """Tokens between the starts of windows; by default half a window. Each context has at least length − stride + 1
    tokens."""
    bos: str = "auto"
    """Special tokens at the start of every window: ``"auto"`` for those that the tokenizer puts before a text, or that
    ``add_bos_token`` asks for; ``"on"`` for the beginning-of-sequence token if there are none; ``"off"`` for none."""
    batch_size: int | None = None
    """Windows encoded at once; by default about `TOKENS_AT_ONCE` tokens."""
    vocab: str = "both"
    """Columns of a padded output layer: rows of the ``"model"``, tokens of the ``"tokenizer"``, or ``"both"``."""
    precise: bool = False
    """Whether the output layer is computed in float64 instead of float32."""
    dataset: str | None = None
    """A dataset of the hub, ``NAME`` or ``NAME:CONFIGURATION``, instead of a corpus."""
    allow_pickle: bool = False
    """Whether pickled weights may be read; only their numbers are, and no code runs."""

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if self.vocab not in VOCABULARIES:
            raise ConfigurationError(f"unknown vocabulary {self.vocab!r}; it is one of {', '.join(VOCABULARIES)}")
        if self.bos not in BOS:
            raise ConfigurationError(f"unknown bos {self.bos!r}; it is one of {', '.join(BOS)}")
        check_positive(context_length=self.context_length, stride=self.stride, batch_size=self.batch_size)
