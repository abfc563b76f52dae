"""Results: their base class, their tables and figures, what is read of saved ones, and published numbers."""

from .base import Result, frame, table

__all__ = ["Result", "frame", "table"]
