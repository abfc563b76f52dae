"""All figures and tables, those of the papers and others. They read saved results; none of them trains.

To add one: write a function under `figure` or `table` of base.py, or a published table in published.toml, and enter its
name in ``REGISTRY``, whose order is that of the gallery.
"""

from __future__ import annotations

from softmax_bottleneck.errors import look_up

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
from .base import ENTRIES, Entry, Figure, TableEntry, figure, table
from .results import SavedResults, read

REGISTRY: dict[str, Entry] = {
    name: ENTRIES[name]
    for name in (
        "mos-table-1", "mos-table-2", "mos-table-3", "mos-table-4", "mos-table-5", "mos-table-6", "mos-table-7",
        "mos-table-7-plot", "mos-table-8", "mos-table-9", "mos-table-10", "mos-table-11", "mos-table-12",
        "mos-table-13", "mos-table-14", "mos-figure-1", "lms-table-1", "lms-table-2", "lms-figure-1", "lms-figure-2",
        "lms-figure-3", "lms-figure-4", "lms-figure-5", "lms-figure-6", "lms-figure-7", "lms-figure-8",
        "parthiban-nt-asgd", "parthiban-et-asgd", "parthiban-figure", "spectra", "rank-by-tolerance",
        "effective-ranks", "row-centring", "attainable-kl", "training-course", "training-course-table",
        "transformer-study", "transformer-study-figure", "frozen-body", "frozen-body-figure", "smollm2",
        "smollm2-and-mos", "spam", *published_tables.FAMILIES, "presets", "bench-heads", "bench-training",
    )
}  # fmt: skip


def find(name: str) -> Entry:
    """Return the figure or table registered under ``name``; `ConfigurationError` lists the known ones."""
    return look_up("figure", name, REGISTRY)


__all__ = ["REGISTRY", "Entry", "Figure", "SavedResults", "TableEntry", "figure", "find", "read", "table"]
