"""Log-probability stores: Zarr v3 groups that ``bottleneck dump`` writes chunk by chunk, on a disk or behind a URL.

``log_probs`` is (T, M) in chunks of whole rows with Zarr's checksum (crc32c); its fill value is NaN, so that a missing
chunk is never read as zeros. ``targets`` is (T,). The group's attributes hold the provenance and their own SHA-256.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, NoReturn, NotRequired, Self, final

import numpy as np
import zarr
from annotated_types import Interval
from numpy.typing import NDArray
from typing_extensions import TypedDict
from zarr.codecs import Crc32cCodec
from zarr.storage import MemoryStore

from ..core.files import sha256_bytes, sha256_json
from ..core.json_file import check_schema
from ..errors import Parameter, SourceError, StoreError
from ..heads import RankBound
from ..language_models.source import Block, Source, spanning
from ..spectrum import Precision
from ..spectrum.blocks import checked
from ..spectrum.inspection import Inspection
from .arrays import of_array
from .zarr_array import WrittenRows, as_source_errors, open_node

FORMAT = "softmax-bottleneck log-probability store 2"
LOG_PROBS, TARGETS = "log_probs", "targets"
SHA256 = "sha256"
"""Attribute with the checksum of all others."""
UNKNOWN_TARGET = np.int64(-1)
"""Entry of ``targets`` for an unknown token."""
_Size = Annotated[int, Interval(ge=1, lt=2**48)]


class _Attributes(TypedDict):
    """The provenance of a store."""

    format: Literal["softmax-bottleneck log-probability store 2"]
    source: dict[str, Any]
    identity: dict[str, Any]
    targets_sha256: str
    contexts: _Size
    vocab: _Size
    chunk_rows: _Size
    dtype: Literal["float32", "float64"]
    eps: Precision
    bound: RankBound
    embedding_size: _Size | None
    caution: NotRequired[str]
    replaced: NotRequired[str]
    exponent: NotRequired[int]


@final
class StoreSource(Source):
    """The matrix of a store, with the provenance recorded in it; every chunk is checked as it is read.

    Args:
        group: the opened store.
        path: its path or URL.
        kind: the default, or what the store records that it holds.

    Raises:
        StoreError: for a group that ``bottleneck dump`` did not write, or that is damaged.
    """

    def __init__(self, group: zarr.Group, *, path: str, kind: str = "log-probs") -> None:
        self._path, self._attributes = path, read_attributes(group, path)
        recorded = self._attributes["source"].get("kind")
        if kind not in ("log-probs", recorded):
            raise StoreError(
                f"the store {path} records what it holds ({recorded}), so ",
                Parameter("kind", kind),
                " does not apply: leave it out, or dump the source itself again with that kind",
            )
        self.shape = (self._attributes["contexts"], self._attributes["vocab"])
        self._places: NDArray[np.int64] = np.arange(self.shape[0])  # of the rows in the store
        holds = "matrix" if recorded == "matrix" else "store"  # rows of the former need not be distributions
        self.description = {**self._attributes["source"], "path": path, "kind": holds}
        self.embedding_size, self.dtype = self._attributes["embedding_size"], self._attributes["dtype"]
        self.identity = {**self._attributes["identity"], "store": sha256_json(self._attributes)}
        self.bound, self._precision = RankBound(**self._attributes["bound"]), Precision.read(self._attributes["eps"])
        try:
            for name, layout in layouts(self._attributes).items():
                check_layout(group, name, layout)
            self._rows = WrittenRows(group[LOG_PROBS], path)
            self.targets = read_targets(group, self._attributes)
        except SourceError as error:
            raise StoreError(
                f"an array of {path} is missing or does not hold what was written ({error}); repeat the 'bottleneck "
                "dump' that made the store to write it anew"
            ) from error

    @property
    def precision(self) -> Precision:
        """The precision recorded when the store was written, or of the rows that are kept."""
        if self._inspection is None:
            return self._precision
        found = self._inspection.precision
        return found if self._is_verbatim else replace(self._precision, distinct=found.distinct)

    @property
    def expected_precision(self) -> Precision:
        """The precision recorded when the store was written."""
        return self._precision

    @property
    def _is_verbatim(self) -> bool:
        """Whether the numbers are those that were rounded, and not normalized since."""
        return self._attributes["source"].get("kind") in ("log-probs", "matrix")

    def rank_warning(self, eps: float) -> str:
        """Return the warning recorded when the store was written, or of the rows that are kept."""
        if self._inspection is None:
            return str(self._attributes.get("caution", ""))
        return self._inspection.rank_warning(eps)

    def entry_warning(self) -> str:
        """Return what was recorded of the entries when the store was written, or of those that are kept."""
        return str(self._attributes.get("replaced", "")) if self._inspection is None else self._inspection.replaced()

    @property
    def exponent(self) -> int:
        """The exponent recorded when the store was written, which is of all rows."""
        return int(self._attributes.get("exponent", 0))

    @cached_property
    def _inspection(self) -> Inspection | None:
        """An inspection of the rows that are kept, if what was recorded was inferred from more of them."""
        if not self._precision.assumed or self.shape[0] == self._attributes["contexts"]:
            return None
        native = self._precision.dtype or self.dtype
        inspection = Inspection(dtypes=[native], language=self.description["kind"] != "matrix")
        for block in self.blocks():
            inspection.watch(block.log_probs)
        return inspection

    def _keep_first(self, contexts: int) -> None:
        super()._keep_first(contexts)
        vars(self).pop("_inspection", None)

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield the rows; every chunk that holds them is read and checked once."""
        chunk = lru_cache(1)(self._chunk)
        starts = range(0, self._attributes["contexts"], self._attributes["chunk_rows"])
        for rows in self.ranges() if ranges is None else ranges:
            places = self._places[rows.start : rows.stop]
            span = spanning(range(places[0], places[-1] + 1), starts, chunk)
            yield Block(rows.start, span if len(span) == len(places) else span[places - places[0]])

    def scored(self) -> Self:
        """Return the contexts whose next token is known."""
        if self.targets is None or (known := self.targets >= 0).all():
            return self
        part = copy.copy(self)
        part._places, part.targets = self._places[known], self.targets[known]
        part.shape, part.identity = (len(part.targets), self.shape[1]), {**self.identity, "scored": "only"}
        return part

    def _chunk(self, number: int) -> NDArray[Any]:
        start = number * self._attributes["chunk_rows"]
        stop = min(start + self._attributes["chunk_rows"], self._attributes["contexts"])
        try:
            values = self._rows.read(slice(start, stop), np.nan)
        except SourceError as error:
            self._refuse(start, stop, str(error))
        if np.isnan(values).all():
            self._refuse(start, stop, "the dump was not finished, or its file was lost")
        return next(checked([values], what=self._path, start=start, minus_inf=True))

    def _refuse(self, start: int, stop: int, why: str) -> NoReturn:
        raise StoreError(
            f"rows {start} to {stop - 1} of the store {self._path} are missing or damaged ({why}): run the same "
            "'bottleneck dump' again, which writes them"
        )

    def rows_at_once(self) -> int:
        """Return the number of rows in a chunk, so that no chunk is read twice or copied."""
        return min(self.shape[0], self._attributes["chunk_rows"])


def read_attributes(group: zarr.Group, path: str) -> dict[str, Any]:
    """Return the provenance of a store without its checksum.

    Raises:
        StoreError: for a group that ``bottleneck dump`` did not write, or attributes that are damaged.
    """
    attributes = dict(group.attrs)
    if attributes.get("format") != FORMAT:
        raise StoreError(
            f"{path} was not written by 'bottleneck dump' (its format is not {FORMAT!r}); give the folder of a store, "
            f"or one array of the group, as {path}/NAME"
        )
    try:
        if attributes.pop(SHA256, None) != sha256_json(attributes):
            raise ValueError("they are not those that were written")
        check_schema(attributes, _Attributes)
    except ValueError as error:
        raise StoreError(f"the attributes of {path} are damaged ({error}): dump into another store") from error
    return attributes


def layouts(attributes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments of ``zarr.create_array`` for each array of a store."""
    T, M = attributes["contexts"], attributes["vocab"]
    rows = {
        "shape": (T, M),
        "chunks": (attributes["chunk_rows"], M),
        "dtype": attributes["dtype"],
        "fill_value": np.nan,
    }
    targets = {"shape": (T,), "chunks": (T,), "dtype": "int64", "fill_value": UNKNOWN_TARGET}
    return {name: {**layout, "compressors": Crc32cCodec()} for name, layout in ((LOG_PROBS, rows), (TARGETS, targets))}


def check_layout(group: zarr.Group, name: str, layout: Mapping[str, Any]) -> None:
    """Refuse an array of a group that is missing or has another shape, type or codec; `SourceError`."""
    with as_source_errors(name):
        expected = zarr.create_array(MemoryStore(), **layout).metadata.to_dict()
        if group[name].metadata.to_dict() != expected:
            raise SourceError(f"the shape, the type or the codecs of {name} changed")


def read_targets(group: zarr.Group, attributes: Mapping[str, Any]) -> NDArray[np.int64] | None:
    """Return the token that follows each context, (T,), or ``None`` if the source did not know it.

    Raises:
        SourceError: when they are missing or damaged.
    """
    with as_source_errors(TARGETS):
        targets = WrittenRows(group[TARGETS], TARGETS).read(slice(None), UNKNOWN_TARGET)
        if targets.dtype != np.int64 or sha256_bytes(targets.tobytes()) != attributes["targets_sha256"]:
            raise SourceError("the targets have another checksum")
    return None if (targets == UNKNOWN_TARGET).all() else targets


def open_zarr(source: Any, *, kind: str = "log-probs") -> Source:
    """Open a two-dimensional Zarr array, or a dumped store: an object of Zarr, or one at a path or URL.

    Zarr reads a chunk that was never written as the fill value, often zero; rows of such a chunk are refused.

    Raises:
        SourceError: when nothing is there that can be read.
        StoreError: for a group that ``bottleneck dump`` did not write, or that is damaged.
    """
    node = open_node(source) if isinstance(source, str) else source
    path = source if isinstance(source, str) else str(node.store_path)
    if isinstance(node, zarr.Group):
        return StoreSource(node, path=path, kind=kind)
    return of_array(WrittenRows(node, path), kind=kind, path=path)
