"""Write the matrix of log-probabilities to a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from ..core.interruption import explained
from ..core.options import Opening, takes
from ..core.progress import Progress, reporting
from ..sources import open_source
from ..sources.store_files import MANIFEST, read_manifest
from ..sources.store_writing import write_store


@takes(Opening)
def dump(source: Any, path: str | Path, *, progress: Progress | bool = False, **options: Unpack[Opening]) -> Path:
    """Write a source's matrix to a store block by block, or finish a dump that was interrupted.

    Memory holds one block. An interrupted dump continues at the chunk it had reached and ends with the same bytes.
    Damaged chunks of a finished dump are written again.

    Args:
        source: as for `rank`.
        path: the store, a folder that ends in ``.zarr``.
        progress: where to report; ``True`` means standard error.
        options: how the source is opened, see `Opening`.

    Returns:
        The store's path.

    Raises:
        StoreError: when ``path`` holds other files, or a store of another model, text or size.
        OutputError: when the store cannot be written.
    """
    opened, path = open_source(source, **options), Path(path)

    def kept() -> str:
        done = read_manifest(path).values() if (path / MANIFEST).exists() else ()
        contexts = f"{sum(chunk.rows for chunk in done):,} of {opened.shape[0]:,} contexts"
        return f"{contexts} are kept in {path}, and the same command continues from there"

    with explained(kept):
        return write_store(opened, path, progress=reporting(progress))
