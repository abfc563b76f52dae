"""The base class of sources: a matrix of log-probabilities in blocks of rows, with its provenance."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.progress import SILENT, Progress
from ..errors import Parameter, SourceError
from ..heads import RankBound
from ..spectrum import Precision
from .text import Text

BLOCK_BYTES = 16 << 20
"""Size of one block of rows: it fits in the last-level cache of most machines, and its overhead is negligible."""


class Block(NamedTuple):
    """Consecutive rows of A = log P."""

    start: int
    """Index of the first row."""
    log_probs: NDArray[Any]
    """(n, M), natural logarithms."""


UNKNOWN = RankBound(None, None, "nothing is known of what made the matrix")


def spanning(rows: range, starts: Sequence[int], part: Callable[[int], NDArray[Any]]) -> NDArray[Any]:
    """Return a range of rows of a matrix in parts that begin at ``starts``, which ``part`` returns by number."""
    first, last = (bisect_right(starts, row) - 1 for row in (rows.start, rows.stop - 1))
    pieces = [part(n)[max(0, rows.start - starts[n]) : rows.stop - starts[n]] for n in range(first, last + 1)]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


class RightFactor:
    """Y = [W, b, 1] of A = X Yᵀ, (M, r), of which some rows at a time are float64.

    Args:
        weight: W, (M, d).
        bias: b, (M,), −∞ for tokens that are masked; ``None`` leaves its column out.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self._bias = weight.detach(), None if bias is None else bias.detach()
        self.shape: tuple[int, int] = (len(weight), weight.shape[1] + 1 + int(bias is not None))

    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        """Return some rows, (n, r)."""
        weight = self._weight[rows].cpu()
        joined = torch.ones(len(weight), self.shape[1], dtype=torch.float64)
        joined[:, : weight.shape[1]] = weight
        if self._bias is not None:
            joined[:, -2] = self._bias[rows].cpu()
        return np.asarray(joined.numpy())

    @property
    def masked(self) -> NDArray[np.bool_]:
        """Whether the bias of each token is −∞, (M,)."""
        nothing = np.zeros(self.shape[0], bool)
        return nothing if self._bias is None else np.isneginf(self._bias.cpu().numpy())

    def of(self, tokens: NDArray[np.int64]) -> RightFactor:
        """Return the rows of some tokens."""
        chosen = torch.from_numpy(tokens).to(self._weight.device)
        return RightFactor(self._weight[chosen], None if self._bias is None else self._bias[chosen])


class JoinedFactor:
    """The right factor of a difference X Yᵀ − X' Y'ᵀ, (M, r + r'), some rows at a time.

    Factors of one shape cancel before they are multiplied: the difference is [X − X', X'] [Y, Y − Y']ᵀ. For others it
    is [X, X'] [Y, −Y']ᵀ.
    """

    def __init__(self, first: RightFactor | JoinedFactor, second: RightFactor | JoinedFactor) -> None:
        self._first, self._second = first, second
        self.alike = first.shape == second.shape
        """Whether both factors have one shape."""
        self.shape: tuple[int, int] = (first.shape[0], first.shape[1] + second.shape[1])

    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        """Return some rows, (n, r + r')."""
        one, other = self._first[rows], self._second[rows]
        return np.concatenate([one, one - other if self.alike else -other], 1)

    def left(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows of the left factor, (n, r + r'), given those of X and X'."""
        return np.concatenate([one - other if self.alike else one, other], 1)

    @property
    def masked(self) -> NDArray[np.bool_]:
        """Whether either bias of each token is −∞, (M,)."""
        return self._first.masked | self._second.masked

    def of(self, tokens: NDArray[np.int64]) -> JoinedFactor:
        """Return the rows of some tokens."""
        return JoinedFactor(self._first.of(tokens), self._second.of(tokens))


class FactorRows(NamedTuple):
    """A = X Yᵀ, with the rows of X in blocks."""

    left: Callable[[Iterable[range]], Iterator[NDArray[np.float64]]]
    """Takes ascending ranges of rows and yields an (n, r) block for each."""
    right: RightFactor | JoinedFactor
    """Y, (M, r)."""


class Cost(NamedTuple):
    """The cost of computing all rows once, known before any is computed."""

    operations: float
    """Floating-point operations of the model, its output layer included."""
    memory_bytes: int
    """Bytes of the model and its hidden states."""


class Source(ABC):
    """A T × M matrix of log-probabilities. Subclasses are final."""

    shape: tuple[int, int]
    """(T, M)."""
    description: Mapping[str, Any]
    """``path`` and ``kind``, and ``head``, ``corpus`` and ``split`` if they are known."""
    bound: RankBound
    embedding_size: int | None
    dtype: str
    """Type of the blocks, ``"float32"`` or ``"float64"``."""
    targets: NDArray[np.int64] | None = None
    """(T,), the token that follows each context, −1 for one that is not known; ``None`` if none is."""
    text: Text | None = None
    """The text that the rows predict, if it is known."""
    factor_columns: int | None = None
    """Number of columns of the thin factors, if the matrix has them."""
    identity: Mapping[str, str]
    """Hashes of everything that the entries depend on: an interrupted dump continues only if they agree."""

    @property
    def name(self) -> str:
        """The label that it was given, otherwise its path."""
        return str(self.description.get("label") or self.description["path"])

    @property
    @abstractmethod
    def precision(self) -> Precision:
        """The relative roundoff of the least precise step that computed the entries."""

    def prepare(self, progress: Progress = SILENT) -> None:  # noqa: B027 (most sources have nothing to find out)
        """Compute what needs a pass over the matrix, such as its precision, and show the progress of that pass."""

    def check_distributions(self) -> None:
        """Refuse a matrix of any kind, whose rows need not be distributions."""
        if self.description["kind"] == "matrix":
            raise SourceError(f"{self.name} is a matrix of any kind: give log-probabilities or logits")

    @property
    def expected_precision(self) -> Precision:
        """The precision as far as it is known before the matrix is read; `precision` may be coarser."""
        return self.precision

    @property
    def rows_precision(self) -> Precision:
        """The precision of the rows as `blocks` yields them; `precision` is that of what they are computed from."""
        return self.precision

    @property
    def exponent(self) -> int:
        """Return e if the matrix is scaled by 2^−e to keep its squares within float64's range."""
        return 0

    def rank_warning(self, eps: float) -> str:
        """Return why a rank computed with the roundoff ``eps`` is unreliable, or an empty string."""
        return ""

    def entry_warning(self) -> str:
        """Return why entries may be something else than log-probabilities, such as a floor, or an empty string."""
        return ""

    def __repr__(self) -> str:
        """Return the class, the path, the shape and the type, on one line."""
        T, M = self.shape
        return f"{type(self).__name__}({str(self.description['path'])!r}, {T:,} × {M:,}, {self.dtype})"

    @abstractmethod
    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield the rows of ascending ranges, one block for each range; by default all rows in `ranges`.

        Entries are finite or −∞. Rows between the ranges are computed only where that cannot be avoided.
        """

    def ranges(self, rows: int | None = None) -> list[range]:
        """Return ranges of ``rows`` rows, by default `rows_at_once`, that cover all rows; the last may be shorter."""
        at_once, contexts = rows or self.rows_at_once(), self.shape[0]
        return [range(start, min(start + at_once, contexts)) for start in range(0, contexts, at_once)]

    @property
    def entries_shape(self) -> tuple[int, int]:
        """The shape of all `entries` together, (contexts, M)."""
        return self.shape

    def entries(self) -> Iterator[NDArray[Any]]:
        """Yield blocks of the entries that `precision` describes: the rows, or logits before they are normalized."""
        return (block.log_probs for block in self.blocks())

    def first(self, contexts: int) -> Self:
        """Return the first rows of this source; `SourceError` for a number of rows that it does not have."""
        if not hasattr(contexts, "__index__") or not 1 <= contexts.__index__() <= self.shape[0]:
            raise SourceError(
                Parameter("contexts"),
                f" must be between 1 and {self.shape[0]:,}, the contexts of {self.description['path']}, not "
                f"{contexts!r}",
            )
        part = copy.copy(self)
        part.targets = None if self.targets is None else self.targets[: contexts.__index__()]
        part._keep_first(contexts.__index__())
        return part

    def scored(self) -> Self:
        """Return the contexts whose next token is known, or all where the source cannot leave any out."""
        return self

    def _keep_first(self, contexts: int) -> None:
        """Make the first rows of this copy the whole."""
        self.shape = (contexts, self.shape[1])

    def factors(self) -> FactorRows | None:
        """Return the thin factors of the matrix, or ``None``."""
        return None

    @property
    def cost(self) -> Cost:
        """The cost of computing all rows once; no model is run."""
        return Cost(0.0, 0)

    def check_losses(self, losses: NDArray[Any], start: int) -> None:
        """Refuse targets of probability 0, given the losses (n,) in nats of the rows from ``start``."""
        impossible = np.flatnonzero(np.isposinf(losses))
        if impossible.size and self.targets is not None:
            row = start + int(impossible[0])
            raise SourceError(
                f"{self.name} gives token {self.targets[row]:,}, which follows context {row:,}, "
                "probability 0: the loss is infinite; take a text without this token, or a model that does not mask it"
            )

    def without_padding(self) -> Self | None:
        """Return the renormalized matrix of the tokenizer's tokens, if the output layer has rows for more tokens."""
        return None

    def rows_at_once(self) -> int:
        """Return the number of rows in one block."""
        return min(self.shape[0], max(1, BLOCK_BYTES // (np.dtype(self.dtype).itemsize * self.shape[1])))


def text_of(sources: Iterable[Source]) -> Text | None:
    """Return the text of some sources on the same one, if possible with what names its tokens."""
    texts = (source.text for source in sources if source.text)
    return max(texts, key=lambda text: text.tokenizer is not None, default=None)


def begin_texts(sources: Sequence[Source]) -> NDArray[np.int64] | None:
    """Return the contexts with which the texts of some sources on the same ones begin, (n,), if they are known."""
    text = text_of(sources)
    return None if text is None else text.beginnings(sources[0].shape[0], joined=True)
