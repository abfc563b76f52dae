"""Defaults of Hugging Face models."""

from __future__ import annotations

DEFAULT_CONTEXT_LENGTH = 1024
"""Tokens of a window if the model can take more: the limit of GPT-2, because the cost of attention grows with it."""
TOKENS_AT_ONCE = 4096
"""Default number of tokens of a batch of windows."""
