"""All figures and tables, those of the papers and others. They read saved results; none of them trains.

To add one: write a function under `figure` or `table` of base.py, or a published table in published.toml.
"""

from __future__ import annotations

from softmax_bottleneck.errors import look_up
from softmax_bottleneck.results.base import by_numbers

from . import (  # noqa: F401 — each registers its figures and tables
    bench,
    lms,
    lms_synthetic,
    mos,
    pretrained,
    published_tables,
    spectra,
    studies,
    training_course,
)
from .base import ENTRIES, Entry, Figure, Table, figure, table
from .results import Results, read

REGISTRY: dict[str, Entry] = {name: ENTRIES[name] for name in sorted(ENTRIES, key=by_numbers)}


def find(name: str) -> Entry:
    """Return the figure or table registered under ``name``; `ConfigurationError` lists the known ones."""
    return look_up("figure", name, REGISTRY)


__all__ = ["REGISTRY", "Entry", "Figure", "Results", "Table", "figure", "find", "read", "table"]
