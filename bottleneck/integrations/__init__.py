"""Measurements during training with other libraries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..hugging_face.folder import import_transformers
from .statistics import model_statistics, training_statistics

if TYPE_CHECKING:
    from . import transformers
    from .callback import TransformersCallback


def __getattr__(name: str) -> Any:
    """Import what needs the package transformers on first use."""
    if name == "TransformersCallback":
        import_transformers()
        return import_module(".callback", __name__).TransformersCallback
    if name == "transformers":
        return import_module(".transformers", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["TransformersCallback", "model_statistics", "training_statistics", "transformers"]
