"""The measurements inside other people's training loops."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .statistics import model_statistics, training_statistics

if TYPE_CHECKING:
    from .callback import TransformersCallback


def __getattr__(name: str) -> Any:
    """Import the callback when it is asked for: it needs the package transformers."""
    if name == "TransformersCallback":
        return import_module(".callback", __name__).TransformersCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["TransformersCallback", "model_statistics", "training_statistics"]
