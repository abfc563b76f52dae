"""Hugging Face causal language models, from a folder, the hub, or a loaded object."""

from .on_text import HuggingFaceOnText, Tokens
from .opening import open_loaded, open_saved
from .options import HuggingFaceOptions

__all__ = ["HuggingFaceOnText", "HuggingFaceOptions", "Tokens", "open_loaded", "open_saved"]
