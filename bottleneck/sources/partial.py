"""Sources that hold a part of each distribution: what they tell is the largest value that an unseen entry can have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, NoReturn, final

import numpy as np
from numpy.typing import NDArray

from ..errors import Function, MatrixError, SourceError
from ..language_models.llama_cpp import KldFile
from ..language_models.source import UNKNOWN, Source
from ..spectrum import Precision

Matrix = NDArray[np.float64]

SPAN = 16.0
"""Nats below a row's largest logit at which llama.cpp puts a floor."""
FLOAT32 = 2.0**-21
"""Bound on the relative error of the few float32 operations that make a row of a ``.kld`` file."""


class Part(NamedTuple):
    """Consecutive rows of A = log P, of which some entries are unseen."""

    start: int
    """Index of the first row."""
    log_probs: Matrix
    """(n, M); the most that an unseen entry can be, up to ``error``."""
    seen: NDArray[np.bool_]
    """(n, M)."""
    error: Matrix
    """(n, 1) or (n, M), the most by which a number may be off."""
    shift: float = 0.0
    """The most by which all numbers of a row may be off together, beside that."""

    def rows(self, some: slice) -> Part:
        """Return some of the rows."""
        return Part(self.start + some.start, self.log_probs[some], self.seen[some], self.error[some], self.shift)

    def box(self) -> tuple[Matrix, Matrix]:
        """Return the least and the largest probability that each entry may have, (n, M).

        Raises:
            MatrixError: for a row that no distribution fits.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # of a damaged row
            p, factor = np.exp(self.log_probs), np.exp(self.error + self.shift)
            box = p / factor * self.seen, p * factor
        least, largest = (each.sum(1) for each in box)
        if (wrong := ~((least <= 1) & (largest >= 1))).any():  # or NaN
            row = int(wrong.argmax())
            raise MatrixError(
                f"the probabilities of row {self.start + row} sum to {least[row]:.6g} at least and {largest[row]:.6g} "
                "at most: these are not natural logarithms of probabilities, or the file is damaged"
            )
        return box


class PartialSource(Source):
    """Log-probabilities of some tokens of each context.

    `compare` takes it as reference, and `rank` proves a lower bound from it.
    """

    embedding_size: int | None = None
    bound = UNKNOWN
    dtype = "float64"
    doubt = ""
    """What a rank of this source depends on, as a sentence without a full stop, or an empty string."""

    @property
    @abstractmethod
    def step(self) -> float:
        """The largest distance of neighbouring numbers on the grid that the entries were rounded to."""

    @abstractmethod
    def tokens(self) -> Any:
        """Return the tokens of the text as an argument ``data`` of models; `SourceError` if they are not known."""

    @abstractmethod
    def parts(self, ranges: Iterable[range] | None = None) -> Iterator[Part]:
        """Yield the rows of ascending ranges, one part for each; by default all rows in `ranges`."""

    @property
    def precision(self) -> Precision:
        """Refuse: what needs the precision needs all entries."""
        self._refuse()

    def blocks(self, ranges: Iterable[range] | None = None) -> NoReturn:
        """Refuse: some entries are unseen."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise SourceError(
            f"{self.description['path']} holds a part of each distribution: give it as the reference of ",
            Function("compare"),
            ", or to ",
            Function("rank"),
            ", which proves a lower bound",
        )


@final
class KldSource(PartialSource):
    """llama.cpp's file of log-probabilities: 16 bits an entry, and nothing 16 nats below the likeliest token.

    Args:
        path: see `KldFile`.
    """

    def __init__(self, path: str) -> None:
        self._file = KldFile(path)
        self.shape = (self._file.contexts, self._file.vocab_size)
        self.targets = self._file.targets
        self.description = {"path": path, "kind": "kld", "head": None, "corpus": None, "split": None}

    @property
    def step(self) -> float:
        """That of a row that reaches the floor."""
        return SPAN / 65535

    def tokens(self) -> str:
        """Return the name of the file."""
        return str(self.description["path"])

    def parts(self, ranges: Iterable[range] | None = None) -> Iterator[Part]:
        """Yield the rows; an entry at the floor is unseen."""
        for rows in self.ranges() if ranges is None else ranges:
            q, scale, least = self._file.rows(rows)
            if not (is_number := np.isfinite(scale + least)[:, 0]).all():
                raise MatrixError(
                    f"row {rows.start + int(np.argmin(is_number))} of {self.description['path']} is not finite: "
                    "llama.cpp's logits were not either; compute them in a wider type"
                )
            reaches_floor = 65535 * scale >= SPAN * (1 - FLOAT32)
            error = scale / 2 + FLOAT32 * (65535 * scale + np.abs(least))
            log_probs = np.multiply(q, scale, dtype=np.float64)
            log_probs += least
            part = Part(rows.start, log_probs, (q > 0) | ~reaches_floor, error)
            for row in range(len(rows)):  # a damaged one sums to something else than 1
                part.rows(slice(row, row + 1)).box()
            yield part
