"""llama.cpp's file of log-probabilities, which ``llama-perplexity --kl-divergence-base FILE.kld`` writes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.files import begins_with, open_file
from ..corpora.batches import IGNORED
from ..errors import SourceError

SUFFIX, MAGIC = ".kld", b"_logits_"
MOST_TOKENS = 1 << 24
"""Number of tokens that no vocabulary has: a larger number is damage."""


def is_kld(name: Any) -> bool:
    """Return whether a name or a path is that of such a file, which people also name .bin or .dat."""
    return isinstance(name, str | Path) and (str(name).lower().endswith(SUFFIX) or begins_with(Path(name), MAGIC))


class KldFile:
    """Tokens in chunks, and a row of 16-bit numbers for each context in the second half of a chunk.

    log p = scale · q + least for q > 0. Logits more than 16 nats below the largest of their row have q = 0. The layout
    is that of ``tools/perplexity/perplexity.cpp`` (llama.cpp, functions ``perplexity`` and ``log_softmax``).

    Args:
        path: the file; its rows are read on demand.

    Raises:
        SourceError: for a file that is missing, truncated, or of another format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with open_file(self.path) as file:
                if file.read(len(MAGIC)) != MAGIC:
                    raise SourceError(f"{path} does not begin with _logits_, as llama.cpp's files of logits do")
                header = np.frombuffer(file.read(12).ljust(12, b"\xff"), "<i4")
                context_length, self.vocab_size, chunks = map(int, header)
                if header.min() < 1 or context_length < 3 or self.vocab_size > MOST_TOKENS:
                    raise SourceError(f"{path} is truncated or damaged: write it again with llama-perplexity")
                padded = 2 * ((self.vocab_size + 1) // 2)
                self._first, self._start = context_length // 2, file.tell() + 4 * chunks * context_length
                self.contexts = chunks * (context_length - 1 - self._first)
                size, whole = self.path.stat().st_size, self._start + self.contexts * (8 + 2 * padded)
                if size != whole:
                    raise SourceError(
                        f"{path} has {size:,} bytes, and {chunks:,} chunks of {context_length:,} tokens need "
                        f"{whole:,}: llama-perplexity did not finish it, or the disk was full; write it again"
                    )
                stored = np.frombuffer(file.read(self._start - file.tell()), "<i4")
        except OSError as error:
            raise SourceError(f"cannot read {path}: {error.strerror}") from error
        if stored.min() < 0 or stored.max() >= self.vocab_size:
            wrong = stored[(stored < 0) | (stored >= self.vocab_size)][0]
            raise SourceError(f"{path} is damaged: it holds token {wrong:,}, and has {self.vocab_size:,} tokens")
        self._row = np.dtype([("scale", "<f4"), ("least", "<f4"), ("q", "<u2", (padded,))])
        self.tokens: NDArray[np.int64] = stored.reshape(chunks, context_length).astype(np.int64)
        """(chunks, n_ctx)."""

    @cached_property
    def targets(self) -> NDArray[np.int64]:
        """(T,), the token that follows each context."""
        return self.tokens[:, self._first + 1 :].ravel()

    def rows(self, rows: range) -> tuple[NDArray[np.uint16], NDArray[np.float64], NDArray[np.float64]]:
        """Return q, (n, M), and scale and least, (n, 1) each, of consecutive contexts."""
        offset = self._start + rows.start * self._row.itemsize
        count = len(rows) if self.path.is_file() else 0
        read = np.fromfile(self.path, self._row, count, offset=offset) if count else np.empty(0, self._row)
        if len(read) < len(rows):
            raise SourceError(f"{self.path} became shorter while it was read: wait until it is written")
        scale, least = (read[name].astype(np.float64)[:, None] for name in ("scale", "least"))
        return read["q"][:, : self.vocab_size], scale, least

    def batches(self, prefix: list[int]) -> list[dict[str, NDArray[np.int64]]]:
        """Return the chunks as llama.cpp evaluates them: a token that begins texts replaces the first, if there is one.

        Only the contexts that have a row in the file have labels (see `texts_of`).
        """
        ids, labels = self.tokens.copy(), self.tokens.copy()
        ids[:, : len(prefix)] = prefix
        labels[:, : self._first + 1] = IGNORED
        return [{"input_ids": ids, "labels": labels}]
