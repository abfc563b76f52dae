"""Hugging Face causal language models on a text."""

from .model import HuggingFaceModel
from .on_text import open_loaded, open_saved

__all__ = ["HuggingFaceModel", "open_loaded", "open_saved"]
