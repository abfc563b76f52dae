"""Write the matrix of log-probabilities to a store, block by block, so that a kill loses at most one block."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import zarr
from numpy.typing import NDArray

from ..core.checks import check_positive, typed
from ..core.files import explain_output_errors, make_folder, only_process, replacing, sha256_bytes, sha256_json
from ..core.interruption import note_if_interrupted
from ..core.options import DumpOptions, takes
from ..core.progress import Progress, reporting
from ..core.version import __version__
from ..errors import BottleneckError, ConfigurationError, OutputError, Parameter, SourceError, StoreError
from ..sources import Source
from ..sources.measurement import prepared
from ..sources.store import (
    FORMAT,
    LOG_PROBS,
    SHA256,
    TARGETS,
    UNKNOWN_TARGET,
    check_layout,
    layouts,
    read_attributes,
    read_targets,
)
from ..sources.top_k import COLUMNS, TARGET
from ..sources.zarr_array import WrittenRows, open_node
from ..spectrum.blocks import checked
from .dumping_states import LEFTOVER, refuse_another, refuse_other_files, rows_of_file, states_about, write_states

TOP = b"softmax_bottleneck"
"""Key of the hash, in the metadata of a Parquet file, of what the likeliest tokens are of."""


@takes(DumpOptions)
@typed
def dump(source: Any, path: str | Path, **options: Unpack[DumpOptions]) -> Path:
    """Write a source's matrix to a store block by block, or finish a dump that was interrupted.

    Memory holds one block. An interrupted dump continues at the chunk or file it had reached and ends with the same
    bytes. Damaged chunks of a finished dump are written again.

    Args:
        source: as for `rank`.
        path: the store, a folder that ends in ``.zarr``; with ``states`` a folder, with ``top`` a ``.parquet`` file.
        options: how the source is opened, where to report, and what is written, see `DumpOptions`.

    Returns:
        The store's path.

    Raises:
        SourceError: with ``states``, for what does not have hidden states under a softmax.
        ConfigurationError: for ``top`` with ``states``, or below 1.
        StoreError: when ``path`` holds other files, or a store of another model, text or size.
        OutputError: when the store cannot be written.
    """
    states, top = options.get("states", False), options.get("top")
    check_positive(top=top)
    if states and top is not None:
        raise ConfigurationError("give one of ", Parameter("states"), " and ", Parameter("top"))
    (source,), path, progress = prepared([source], options), Path(path), reporting(options.get("progress", False))
    if top is not None:
        _write_top(source.scored(), path, min(top, source.shape[1]), progress)
        return path
    chunks, rows = ("hidden/*", rows_of_file(source)) if states else (f"{LOG_PROBS}/c/*/0", source.rows_at_once())

    def written() -> str:
        contexts = f"{min(source.shape[0], len([*path.glob(chunks)]) * rows):,} of {source.shape[0]:,} contexts"
        return f"{contexts} are kept in {path}, and the same command continues from there"

    with note_if_interrupted(written):
        about = states_about(source) if states else _attributes(source)
        refuse_other_files(path, about, states=states)
        with only_process(make_folder(path)) as alone:
            if not alone:
                raise StoreError(
                    f"another process is dumping into {path}: wait until it is done, or give another ", Parameter("out")
                )
            (write_states if states else _write)(source, path, about, progress)
    return path


def _write_top(source: Source, path: Path, k: int, progress: Progress) -> None:
    """Write the k likeliest tokens of each context, the likeliest first, with their exact log-probabilities."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix.lower() != ".parquet":
        raise OutputError(f"cannot write {path}: the likeliest tokens go to a file that ends in .parquet")
    source.check_distributions()
    targets = _targets(source)
    of = {"source": source.description, "shape": source.shape, "targets": sha256_bytes(targets.tobytes()), "top": k}
    about = sha256_json(of).encode()
    if path.exists() and path.stat().st_size and _top_of(path) != about:
        raise OutputError(
            f"cannot write {path}: another file is there, not {k} likeliest tokens of {source.name}; name another file"
        )
    with (
        progress.bar(f"dumping {path.name}", source.shape[0], "contexts") as bar,
        replacing(path) as temporary,
        ExitStack() as stack,
    ):
        writer: Any = None
        for start, log_probs in source.blocks():
            ids = np.argpartition(-log_probs, k - 1, axis=1)[:, :k]
            values = np.take_along_axis(log_probs, ids, 1)
            order = np.argsort(-values, axis=1, kind="stable")
            ends, pairs = k * np.arange(len(ids) + 1), zip(COLUMNS, (ids.astype(np.int32), values), strict=True)
            columns = {name: pa.ListArray.from_arrays(ends, np.take_along_axis(each, order, 1).ravel())
                       for name, each in pairs}  # fmt: skip
            table = pa.table({**columns, TARGET: targets[start : start + len(ids)]}, metadata={TOP: about})
            writer = writer or stack.enter_context(pq.ParquetWriter(temporary, table.schema))
            writer.write_table(table)
            bar.advance(len(ids))


def _top_of(path: Path) -> bytes | None:
    """Return the hash of what the likeliest tokens in a file are of; ``None`` for another file."""
    import pyarrow.parquet as pq

    try:
        return (pq.read_schema(path).metadata or {}).get(TOP)
    except (OSError, ValueError):
        return None


def _write(source: Source, path: Path, attributes: dict[str, Any], progress: Progress) -> None:
    """Write the chunks that are missing or damaged."""
    for file in path.rglob("*.partial"):
        if LEFTOVER.search(file.name):
            file.unlink()
    with explain_output_errors(path):
        array = _lay_out(path, source, attributes)[LOG_PROBS]
    there = WrittenRows(array, str(path))
    waiting = [rows for rows in source.ranges(attributes["chunk_rows"]) if not _is_written(there, rows)]
    with progress.bar(f"dumping {path.name}", source.shape[0], "contexts") as bar:
        bar.advance(source.shape[0] - sum(map(len, waiting)))
        for block in source.blocks(waiting) if waiting else ():
            what = str(source.description["path"])
            (values,) = checked([block.log_probs], what=what, start=block.start, minus_inf=True)
            with explain_output_errors(path):
                array[block.start : block.start + len(values)] = values
            bar.advance(len(values))


def _attributes(source: Source) -> dict[str, Any]:
    rare = {
        "caution": source.rank_warning(source.precision.value),
        "replaced": source.entry_warning(),
        "exponent": source.exponent,
    }
    return {
        **{key: value for key, value in rare.items() if value},
        "format": FORMAT,
        "source": dict(source.description),
        "identity": dict(source.identity),
        "targets_sha256": sha256_bytes(_targets(source).tobytes()),
        "contexts": source.shape[0],
        "vocab": source.shape[1],
        "chunk_rows": source.rows_at_once(),
        "dtype": source.dtype,
        "eps": source.precision.to_dict(),
        "bound": asdict(source.bound),
        "embedding_size": source.embedding_size,
        "version": __version__,
    }


def _targets(source: Source) -> NDArray[np.int64]:
    unknown = np.full(source.shape[0], UNKNOWN_TARGET)
    return unknown if source.targets is None else np.ascontiguousarray(source.targets, dtype=np.int64)


def _lay_out(path: Path, source: Source, attributes: dict[str, Any]) -> Any:
    """Return the group with its arrays, which are created where they are missing or damaged."""
    if (path / "zarr.json").exists():
        group = open_node(str(path), write=True)
        refuse_another(path, read_attributes(group, str(path)), attributes)
    else:
        sealed = {**attributes, SHA256: sha256_json(attributes)}
        group = zarr.create_group(store=path, attributes=sealed, zarr_format=3)
    for name, layout in layouts(attributes).items():
        try:
            check_layout(group, name, layout)
        except SourceError:
            group.create_array(name, overwrite=True, **layout)
    try:
        read_targets(group, attributes)
    except BottleneckError:
        group[TARGETS][:] = _targets(source)
    return group


def _is_written(array: WrittenRows, rows: range) -> bool:
    """Return whether a chunk is there and undamaged."""
    try:
        return not np.isnan(array.read(slice(rows.start, rows.stop), np.nan)).any()
    except SourceError:
        return False
