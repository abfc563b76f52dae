"""Texts in whatever holds them, as strings or as token ids without their padding: lists, arrays, batches, data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import SourceError, first_line

IGNORED = -100
"""Label of a token that is not a target, as in transformers."""
COLUMNS = ("input_ids", "attention_mask", "labels", "text")
"""Columns of a data set that are read. Of texts and their ids the ids are, because those are what its model reads."""

Ids = tuple[NDArray[np.int64], NDArray[np.bool_]]
"""A text as ids (N,), and which of them are targets (N,)."""


def texts_in(data: Any) -> list[str] | list[Ids]:
    """Return all texts of `batches_of`, which are all strings or all ids."""
    texts: Any = [text for batch in batches_of(data) for text in batch]
    if len({isinstance(text, str) for text in texts}) > 1:
        raise SourceError("some texts of the data are strings and others are token ids: give one kind")
    return texts


def batches_of(data: Any) -> Iterator[list[str | Ids]]:
    """Yield the texts of each batch; see `texts_of`.

    Args:
        data: ids of one text (N,) or of several (B, L); a mapping or a data frame with `COLUMNS`; or what yields
            batches: a list, a generator, a ``DataLoader``, or a data set of torch or of the package datasets, in any
            of its formats, streamed or not. It is read once.

    Raises:
        SourceError: for anything else.
    """
    if not isinstance(data, Mapping) and hasattr(data, "select_columns"):
        names = data.column_names or []  # others, such as images, take long to read
        data = data.select_columns([each for each in names if each in COLUMNS] or names) if names else data
    elif hasattr(data, "__getitem__") and not (hasattr(data, "__iter__") or hasattr(data, "columns")):
        data = map(_example, map(data.__getitem__, range(len(data))))  # a data set of torch
    is_one = isinstance(data, str | Mapping) or hasattr(data, "columns") or getattr(data, "ndim", 2) < 2
    is_one = is_one or not isinstance(data, Iterable) or (isinstance(data, tuple | list) and _mask_of(data) is not None)
    batches = iter([data] if is_one else data)
    for first in batches:
        rest = chain([first], batches)
        is_number = not hasattr(first, "__len__") or getattr(first, "ndim", 1) == 0
        batches = iter([[*rest]]) if is_number and not is_one else rest
        break
    return ([*texts_of(batch, number)] for number, batch in enumerate(batches))


def texts_of(batch: Any, number: int) -> Iterator[str | Ids]:
    """Yield the texts of a batch, strings, or ids (L,) and which of them are targets (L,); those without ids are not.

    Padding, where the attention mask is zero, is left out. Tokens with the label −100 are read, and are not targets.

    Args:
        batch: ids of one text (L,), of B texts (B, L), or a list of texts; one string or several; a mapping or a data
            frame with such ``input_ids``, and perhaps ``attention_mask`` and ``labels``, or with such ``text``; or a
            tuple or list that begins with ids (B, L), in which a tensor of zeros and ones of their shape is the mask.
        number: the batch's place in the data, for errors.

    Raises:
        SourceError: for anything else.
    """
    mask = labels = None
    if hasattr(batch, "to_pylist"):  # a table of pyarrow, as rows
        for row in batch.to_pylist():
            yield from texts_of(row, number)
        return
    if hasattr(batch, "columns"):
        batch = {name: [*batch[name]] for name in batch.columns}
    if isinstance(batch, Mapping):
        mask, labels, ids, text = (batch.get(key) for key in ("attention_mask", "labels", "input_ids", "text"))
        if not {"input_ids", "text"} & batch.keys():
            raise SourceError(
                f"batch {number} of the data has neither input_ids nor text, but {', '.join(map(str, batch))}: give "
                "the part of a data set that holds them, and its texts under one of these names"
            )
        batch = text if ids is None else ids
    elif isinstance(batch, tuple | list) and len(batch) and getattr(batch[0], "ndim", 0) == 2:
        mask, batch = _mask_of(batch), batch[0]
    if strings := _strings(batch):
        yield from strings
        return
    rows = [] if batch is None else _rows(batch)
    masks, targets = ([np.ones(row.shape) for row in rows] if part is None else _rows(part) for part in (mask, labels))
    if not [row.shape for row in rows] == [row.shape for row in masks] == [row.shape for row in targets]:
        raise SourceError(
            f"batch {number} of the data has a mask or labels of another shape than its ids: give one each"
        )
    for ids, is_text, label in zip(rows, masks, targets, strict=True):
        if ids.ndim != 1:
            raise SourceError(f"batch {number} of the data must be ids of shape (N,) or (B, L), not {ids.shape}")
        if not np.isin(is_text, (0, 1)).all():
            raise SourceError(
                f"the mask of batch {number} of the data holds other numbers than 0 and 1: give each text its own row"
            )
        if is_text.any():
            whole = whole_numbers(ids, f"the token ids of batch {number} of the data")
            yield whole[is_text == 1], (label != IGNORED)[is_text == 1]


def whole_numbers(values: Any, what: str) -> NDArray[np.int64]:
    """Return an array, a tensor or a list of whole numbers as int64; `SourceError` says ``what`` is not."""
    array = _array(values, what)
    if array.size and (array.dtype.kind not in "iu" or array.max() > np.iinfo(np.int64).max):
        found = "text" if array.dtype.kind == "U" else array.dtype
        raise SourceError(f"{what} must be whole numbers that fit in int64, not {found}")
    return array.astype(np.int64)


def _array(values: Any, what: str) -> NDArray[Any]:
    if isinstance(values, np.ma.MaskedArray):
        raise SourceError(f"{what} are a masked array: leave the masked ones out, or give an attention_mask")
    try:
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise SourceError(f"{what} must be whole numbers in an array or a list: {first_line(error)}") from error


def _example(row: Any) -> Any:
    """Return a row of a data set of torch as a batch: a tuple of tensors begins with the ids of one text."""
    return tuple(part[None] for part in row if getattr(part, "ndim", 0)) if isinstance(row, tuple) else row


def _strings(values: Any) -> list[str]:
    """Return a string, or those of a column of strings in which some may be missing; nothing of anything else."""
    if isinstance(values, str):
        return [values]
    if not isinstance(values, Iterable) or getattr(values, "ndim", 1) != 1:
        return []
    if not isinstance(first := next(iter(values), 0), str) and not _is_missing(first):
        return []
    there = [each for each in values if not _is_missing(each)]
    return there if all(isinstance(each, str) for each in there) else []


def _is_missing(entry: Any) -> bool:
    """Return whether an entry of a column is missing, as pandas marks it: by None, NaN or NA."""
    return entry is None or type(entry).__name__ == "NAType" or (isinstance(entry, float) and entry != entry)


def _rows(values: Any) -> list[NDArray[Any]]:
    """Return the rows of numbers (B, L) or of a list of rows; numbers (L,) are one row."""
    is_list = isinstance(values, list | tuple) or str(getattr(values, "dtype", "")) == "object"
    if is_list and len(values) and hasattr(first := next(iter(values)), "__len__") and getattr(first, "ndim", 1):
        return [row for each in values for row in _rows(each)]
    array = _array(values, "the data")
    return list(array) if array.ndim == 2 and len(array) else [array]


def _mask_of(batch: Sequence[Any]) -> Any:
    """Return what comes with ids (B, L) and is a mask of zeros and ones, which holds both, or ``None``."""
    shape = tuple(getattr(batch[0], "shape", ())) if len(batch) else ()
    others = (each for each in batch[1:] if len(shape) == 2 and tuple(getattr(each, "shape", ())) == shape)
    return next((each for each in others if np.array_equal(np.unique(_rows(each)), [0, 1])), None)
