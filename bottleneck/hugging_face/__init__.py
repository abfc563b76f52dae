"""Hugging Face causal language models, from a folder, the Hub, or a loaded object."""

from .on_text import HuggingFaceOnText, open_loaded, open_saved

__all__ = ["HuggingFaceOnText", "open_loaded", "open_saved"]
