"""Hugging Face causal language models, from a folder, the hub, or a loaded object."""

from .on_text import HuggingFaceOnText, Tokens
from .opening import open_loaded, open_saved

__all__ = ["HuggingFaceOnText", "Tokens", "open_loaded", "open_saved"]
