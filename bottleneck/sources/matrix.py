"""A matrix in a file or in memory."""

from __future__ import annotations

import copy
import hashlib
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from ..core.clock import spent
from ..core.progress import SILENT, Progress
from ..errors import MatrixError, Parameter, SourceError
from ..language_models.reading import Chosen
from ..language_models.source import UNKNOWN, Block, Cost, Source
from ..spectrum import Inspection, Precision, precision
from ..spectrum.blocks import as_array, check_dense, check_shape, checked, native_dtype
from ..spectrum.inspection import allowed_log_sum
from ..spectrum.noise import ROWS, evenly
from ..spectrum.precision import EPS
from .array_files import numbers_of
from .file_rows import check_strides

logger = logging.getLogger(__name__)

KINDS = ("log-probs", "logits", "probabilities", "matrix")
ABOUT_ONE = 1e-3
"""By how much a sum of probabilities may miss one to tell which logarithms a row holds."""
FIRST_ROWS, PEAK = 64, 0.9
"""Rows of logits that are compared with logarithms of another base, and the largest probability that tells: where one
token has nearly all of it, its logit may be 0 by a shift."""
AT_ONCE, EXPONENTIALS = 64, 1 << 18
"""Most neighbouring rows of a sample, and exponentials that are computed at once, which fit in a cache."""
READ_AGAIN = 1 << 24
"""Most entries of a matrix that is read again for a better message."""


@final
class MatrixSource(Source):
    """A matrix of numbers: a ``.npy`` or ``.safetensors`` file, an array, a tensor, or blocks of rows.

    Args:
        matrix: (T, M), sliced by rows; a memory-mapped matrix is never read as a whole.
        kind: ``"log-probs"`` (each row's probabilities must sum to one), ``"logits"`` (normalized row by row),
            ``"probabilities"`` (whose logarithms are taken) or ``"matrix"`` (measured as it is).
        path: name of the matrix.
        inspection: inspection of the entries, if it is already done; otherwise it takes a pass over the matrix.
    """

    embedding_size: int | None = None
    bound = UNKNOWN
    targets: NDArray[np.int64] | None = None

    def __init__(
        self,
        matrix: Any,
        *,
        kind: str = "log-probs",
        path: str = "array",
        inspection: Inspection | None = None,
    ) -> None:
        if kind not in KINDS:
            raise SourceError(f"unknown kind {kind!r}; a matrix is one of {', '.join(KINDS)}")
        check_dense(matrix, path)
        check_shape(tuple(matrix.shape), path)
        check_strides(matrix, path)
        try:
            first = matrix[:1]
        except TypeError:  # what has a shape and no slices
            matrix = as_array(matrix)
            first = matrix[:1]
        self.native, matrix = native_dtype(first), numbers_of(matrix, path)
        self.dtype = "float32" if as_array(matrix[:1]).dtype.itemsize <= 4 else "float64"
        self.matrix, self._kind, self._path = matrix, kind, path
        self._native_dtypes: set[str] = set()  # types of the blocks that the matrix was made from
        if inspection is not None:
            self._inspection = inspection
        self.shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        self.description = {"path": path, "kind": kind, "head": None, "corpus": None, "split": None}

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """Hash of all rows."""
        digest = hashlib.sha256()
        for rows in self._raw(self.ranges()):
            digest.update(np.ascontiguousarray(rows).data.cast("B"))
        return {"matrix": digest.hexdigest(), "kind": self._kind}

    @cached_property
    def precision(self) -> Precision:
        """The precision of the entries, inferred from them if it was not given."""
        inferred = self._whole_inspection().precision
        logger.info("%s: precision %s", self._path, inferred)
        if self._kind == "probabilities":
            return replace(inferred, size=1.0)  # of log p, whose error is the relative one of p
        return replace(inferred, size=self._inspection.root_mean_square()) if self._kind == "logits" else inferred

    @property
    def expected_precision(self) -> Precision:
        """That of the entries' type, or of a sample if the matrix is prepared."""
        if "_inspection" in vars(self):
            return self._inspection.sampled
        return precision(self.native if self.native in EPS else self.dtype, assumed=True)

    @property
    def cost(self) -> Cost:
        """The bytes of a matrix in memory; the rows of a file are read block by block."""
        return Cost(0.0, self.matrix.nbytes if isinstance(self.matrix, np.ndarray) else 0)

    @spent("inspected")
    def prepare(self, progress: Progress = SILENT) -> None:
        """Inspect a sample of the entries, unless that is done, and check that the first row is what it should be."""
        if "_inspection" not in vars(self):
            self._inspection = self._inspected(progress)
        next(self.blocks([range(1)]))
        if self._kind == "logits":
            (rows,) = self._raw([range(min(FIRST_ROWS, self.shape[0]))])
            if why := _other_logarithms(rows, most=PEAK):
                raise MatrixError(f"{self._path} holds {why}, and measure log-probabilities")

    @cached_property
    def _inspection(self) -> Inspection:
        """An inspection of evenly spaced rows, or of all if they are few; each pass over the rows continues it."""
        return self._inspected(SILENT)

    def _inspected(self, progress: Progress) -> Inspection:
        inspection = Inspection(dtypes=[self.native], language=self._kind != "matrix")
        if self.shape[0] > ROWS:
            rows = min(AT_ONCE, self.rows_at_once())
            for start in evenly(self.shape[0] - rows + 1, ROWS // rows).tolist():
                inspection.sample(self._read(range(start, start + rows)))
        if self.shape[0] <= ROWS or inspection.masked.any():  # which columns to leave out is known before they are read
            self._inspect(inspection, progress)
        inspection.note(self._native_dtypes | set(getattr(self.matrix, "native_dtypes", ())))
        return inspection

    def _whole_inspection(self) -> Inspection:
        """Return the inspection of all rows, which takes a pass over those that no other pass has read."""
        self._inspect(self._inspection, SILENT)
        return self._inspection

    @spent("inspected")
    def _inspect(self, inspection: Inspection, progress: Progress) -> None:
        """Inspect the rows that are not inspected yet."""
        seen = inspection.rows
        rest = [range(max(rows.start, seen), rows.stop) for rows in self.ranges() if rows.stop > seen]
        if not rest:
            return
        with progress.bar("inspecting the precision", self.shape[0] - seen, "contexts") as bar:
            for rows in rest:
                inspection.watch(self._read(rows))
                bar.advance(len(rows))

    @property
    def exponent(self) -> int:
        """The exponent that keeps the squares of a matrix of kind ``"matrix"`` within float64's range."""
        needs_all = self._kind == "matrix" and self.dtype == "float64"  # the squares of other types are within it
        return self._whole_inspection().exponent if needs_all else 0

    @spent("inspected")
    def rank_warning(self, eps: float) -> str:
        """Return a sentence that names the rows or columns that hold most of the energy, if these are few."""
        return self._whole_inspection().rank_warning(eps)

    def entry_warning(self) -> str:
        """Return what the inspection says of floors, masks, truncations and lost digits."""
        return self._whole_inspection().replaced()

    def scored(self) -> Self:
        """Return the rows whose next token is known, of a function of tokens."""
        targets = getattr(self.matrix, "targets", None)
        if targets is None:
            return self
        part, places = copy.copy(self), np.flatnonzero(targets[: self.shape[0]] >= 0)
        part.matrix, part.targets = Chosen(self.matrix, places), targets[places]
        part._keep_first(len(places))
        return part

    def _keep_first(self, contexts: int) -> None:
        """Forget what is known of all rows: the first ones are inspected without the others."""
        super()._keep_first(contexts)
        if "_inspection" in vars(self):
            self._native_dtypes = self._native_dtypes | set(self._inspection.dtypes)
        for name in ("_inspection", "identity", "precision"):
            vars(self).pop(name, None)

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield the rows, normalized or checked according to their kind; masked tokens are −∞."""
        asked = self.ranges() if ranges is None else list(ranges)
        masked = self._inspection.masked
        for rows, block in zip(asked, self._raw(asked), strict=True):
            block = block.astype(self.dtype, copy=False)
            if self._kind == "logits":
                if _are_probabilities(block):
                    raise self._of_probabilities()
                block = log_softmax(block, axis=1)
            elif self._kind != "matrix":
                self._check_log_probs(rows.start, block)
            if masked.any():
                block = np.where(masked, -np.inf, block)
            yield Block(rows.start, block)

    def entries(self) -> Iterator[NDArray[Any]]:
        """Yield logits before they are normalized; other rows as in `blocks`."""
        return self._raw(self.ranges()) if self._kind == "logits" else super().entries()

    def _raw(self, ranges: Iterable[range]) -> Iterator[NDArray[Any]]:
        inspection = self._inspection
        for rows in ranges:
            block = self._read(rows)
            if rows.start <= inspection.rows < rows.stop:
                with spent("inspected"):
                    inspection.watch(block[inspection.rows - rows.start :])
            yield block

    def _read(self, rows: range) -> NDArray[Any]:
        (block,) = checked([self.matrix[rows.start : rows.stop]], what=self._path, start=rows.start, minus_inf=True)
        if (empty := np.isneginf(block.max(1))).any():
            row = rows.start + int(empty.argmax())
            raise MatrixError(f"row {row} of {self._path} holds -inf alone, as padding does: leave out such rows")
        with np.errstate(divide="ignore"):  # of masked tokens
            return np.log(block, dtype=np.float64) if self._kind == "probabilities" else block

    def _of_probabilities(self) -> MatrixError:
        return MatrixError(f"{self._path} holds probabilities: use ", Parameter("kind", "probabilities"))

    @spent("inspected")
    def _check_log_probs(self, start: int, block: NDArray[Any]) -> None:
        columns = block.shape[1]
        sums, buffer = np.empty(len(block)), np.empty((max(1, EXPONENTIALS // columns), columns), block.dtype)
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            for at in range(0, len(block), len(buffer)):
                some = block[at : at + len(buffer)]
                np.log(np.exp(some, out=buffer[: len(some)]).sum(1, dtype=np.float64), out=sums[at : at + len(some)])
        allowed = allowed_log_sum(self._inspection.sampled, self.shape[1])
        wrong = np.flatnonzero(~(np.abs(sums) <= allowed))
        if not wrong.size:
            return
        if _are_probabilities(block):
            raise self._of_probabilities()
        small = self.shape[0] * self.shape[1] <= READ_AGAIN
        if small and _are_transposed(np.concatenate(list(self._raw(self.ranges())))):
            raise MatrixError(f"the columns of {self._path} hold log-probabilities, not its rows: give its transpose")
        first, row = wrong[0], f"row {start + wrong[0]} of {self._path}"
        if abs(sums[first]) > ABOUT_ONE and (why := _other_logarithms(block[wrong[:1]])):
            raise MatrixError(f"{row} holds {why} to get natural logarithms")
        if left_out := int(np.isneginf(block[first]).sum()):
            missing = -math.expm1(sums[first])
            total = f"{1 - missing:.6g}" if missing > ABOUT_ONE else f"1 − {missing:.2g}"
            raise MatrixError(
                f"{row} holds -inf for {left_out:,} of its tokens, and the probabilities of the others sum to {total}: "
                "give the log-probabilities of all tokens, as they are before the most likely ones are chosen (top-k, "
                "top-p), or normalize the others again: use ",
                Parameter("kind", "logits"),
            )
        raise MatrixError(
            f"{row} is not a row of log-probabilities: the logarithm of its probabilities' sum is {sums[first]:.3g}, "
            f"and at its precision at most {allowed:.1e} from 0; use ",
            Parameter("kind", "logits"),
            " to normalize the rows, or ",
            Parameter("kind", "matrix"),
            " for the rank of the rows as they are",
        )


def _are_probabilities(rows: NDArray[Any]) -> bool:
    """Return whether the rows look like probabilities; those of zeros and ones may be logits."""
    if not (rows[0] >= 0).all() or rows.shape[1] == 1:
        return False
    return bool((rows >= 0).all() and np.allclose(rows.sum(1), 1, atol=1e-2) and (rows != np.rint(rows)).any())


def _are_transposed(rows: NDArray[Any]) -> bool:
    """Return whether the columns look like log-probabilities."""
    with np.errstate(over="ignore"):
        return bool(np.allclose(np.exp(rows.astype(np.float64)).sum(0), 1, atol=1e-2))


def _other_logarithms(rows: NDArray[Any], *, most: float = 1.0) -> str:
    """Return which logarithms of probabilities all rows hold instead of natural ones, and the remedy, or ''.

    In one row at least, no probability is above ``most``.
    """
    named = {
        "base-2 logarithms: multiply by math.log(2)": math.log(2),
        "base-10 logarithms: multiply by math.log(10)": math.log(10),
        "negative logarithms: multiply by -1": -1.0,
    }
    for text, factor in named.items():
        with np.errstate(over="ignore"):
            p = np.exp(factor * rows.astype(np.float64))
        if (np.abs(p.sum(1) - 1) < ABOUT_ONE).all() and p.max(1).min() <= most:
            return text
    return ""
