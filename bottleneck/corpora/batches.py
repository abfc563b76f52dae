"""Texts in batches of token ids, without their padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import SourceError

IGNORED = -100
"""Label of a token that is not a target, as in transformers."""


def texts_in_batches(data: Any) -> list[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Return the texts of at least one token in ids (N,), of one text, (B, L), or batches as in `texts_of`."""
    is_whole = hasattr(data, "shape") or isinstance(data, Mapping) or not isinstance(data, Iterable)
    given = [data] if is_whole else list(data)  # a generator is asked once
    if not is_whole and not (given and hasattr(given[0], "__len__")):
        given = [given]  # plain numbers
    return [text for number, batch in enumerate(given) for text in texts_of(batch, number) if len(text[0])]


def texts_of(batch: Any, number: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield the ids of each text in a batch, (L,), and which of them are targets, (L,).

    Padding, where the attention mask is zero, is left out. Tokens with the label −100 are read, and are not targets.

    Args:
        batch: ids of one text (L,), of B texts (B, L), or a list of texts; a mapping with such ``input_ids``, and
            perhaps ``attention_mask`` and ``labels``; or a tuple or list that begins with ids (B, L), in which a
            tensor of zeros and ones of their shape is the mask.
        number: the batch's place in the data, for errors.

    Raises:
        SourceError: for anything else.
    """
    mask = labels = None
    if isinstance(batch, Mapping):
        mask, labels, batch = (batch.get(key) for key in ("attention_mask", "labels", "input_ids"))
    elif isinstance(batch, tuple | list) and len(batch) and getattr(batch[0], "ndim", 0) == 2:
        mask = next((other for other in batch[1:] if _is_padding_mask(other, batch[0].shape)), None)
        batch = batch[0]
    rows = _rows(batch)
    masks, targets = ([np.ones(row.shape) for row in rows] if part is None else _rows(part) for part in (mask, labels))
    if not [row.shape for row in rows] == [row.shape for row in masks] == [row.shape for row in targets]:
        raise SourceError(
            f"batch {number} of the data has a mask or labels of another shape than its ids: give one each"
        )
    for ids, is_text, label in zip(rows, masks, targets, strict=True):
        if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
            what = "text" if ids.dtype.kind == "U" else f"{ids.dtype} of shape {ids.shape}"
            raise SourceError(
                f"batch {number} of the data must be token ids, whole numbers of shape (N,) or (B, L), not {what}"
            )
        yield ids[is_text != 0].astype(np.int64), (label != IGNORED)[is_text != 0]


def _rows(values: Any) -> list[NDArray[Any]]:
    """Return the rows of numbers (B, L) or of a list of rows; numbers (L,) are one row."""
    if isinstance(values, list | tuple) and len(values) and hasattr(values[0], "__len__"):
        return [row for each in values for row in _rows(each)]
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    return list(array) if array.ndim == 2 and len(array) else [array]


def _is_padding_mask(other: Any, shape: Any) -> bool:
    """Return whether what comes with ids is a mask of zeros and ones, and holds both."""
    return tuple(getattr(other, "shape", ())) == tuple(shape) and np.array_equal(np.unique(_rows(other)), [0, 1])
