"""The matrix of log-probabilities, written to a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from ..progress import SILENT, Progress
from ..sources import Opening, open_source
from ..sources.store_files import write_store


def dump(source: Any, path: str | Path, *, progress: Progress = SILENT, **options: Unpack[Opening]) -> Path:
    """Write a source's matrix to a store block by block, or finish a dump that was interrupted.

    Memory: one block. A dump that was killed continues at the chunk it had reached, to the same bytes; chunks of a
    finished one that are no longer as they were written are written anew.

    Args:
        source: what `rank` takes.
        path: the store, a folder that ends in ``.zarr``.
        progress: where to report.
        options: how the source is opened, see `Opening`.

    Returns:
        The store's path.

    Raises:
        StoreError: when ``path`` holds something else, or a store of another model, text or size.
        OutputError: when it cannot be written.
    """
    return write_store(open_source(source, **options), path, progress=progress)
