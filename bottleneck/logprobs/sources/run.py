"""A run trained by this tool, evaluated on a split of a corpus."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...checkpoint import MODEL, Run, corpus_of, load
from ...corpora import EOS
from ...errors import ConfigurationError, SourceError
from ...files import sha256_file
from ...full_precision import full_precision
from ...heads import LogLinear
from ...spectrum import Precision, precision
from ..base import Block, Bound, FactorRows, HeadFunction, Source, Work, sentence_around

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class _Contexts:
    start: int
    hidden: Tensor
    """(n, hidden_size)."""


@final
class RunSource(Source):
    """The log-probabilities of every token of a split but the first, each with all tokens before it as context.

    Args:
        run: a run folder, or one already loaded.
        data: a corpus other than the one it was trained on; its tokens must be in the run's vocabulary.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        contexts: only the first so many.
        dtype: ``"float32"`` or ``"float64"``, what the model is evaluated in.
        device: ``"cpu"`` or ``"cuda"``.
    """

    def __init__(
        self,
        run: Run | Path,
        *,
        data: str | None = None,
        split: str = "test",
        contexts: int | None = None,
        dtype: str = "float32",
        device: str = "cpu",
    ) -> None:
        if dtype not in DTYPES:
            raise ConfigurationError(f"unknown dtype {dtype!r}; a model is evaluated in {' or '.join(DTYPES)}")
        self.run = run if isinstance(run, Run) else load(run)
        corpus = corpus_of(self.run, data)
        ids = corpus.split(split)
        available = len(ids) - 1
        if available < 1:
            raise SourceError(f"the {split} split of {corpus.name} has no context: it needs at least two tokens")
        if contexts is not None and not 1 <= contexts <= available:
            raise SourceError(f"--contexts must be between 1 and the {available:,} of this split, not {contexts:,}")
        self._ids = torch.from_numpy(ids[: (contexts or available) + 1])
        self.targets = self._ids[1:].numpy()
        self._device, self.dtype = torch.device(device), dtype
        self._precision = precision(dtype)
        # A copy of a run that is not this source's own: others may want its model in another dtype.
        model = copy.deepcopy(run.model) if isinstance(run, Run) else self.run.model
        self._model = model.to(self._device, DTYPES[dtype])
        head = self._model.head
        self.shape = (len(self._ids) - 1, head.vocab_size)
        self.embedding_size = head.embedding_size
        bound = head.rank_bound
        self.bound = Bound(bound.raw, bound.centered, bound.why)
        self.identity = {"model": sha256_file(self.run.path / MODEL), "corpus": corpus.sha256}
        self.description = {
            "path": str(self.run.path),
            "kind": "run",
            "head": self._model.config.head.name,
            "corpus": corpus.name,
            "split": split,
        }

    @property
    def precision(self) -> Precision:
        """That of the forward pass."""
        return self._precision

    def blocks(self, rows: int | None = None, *, wanted: Callable[[int], bool] = lambda start: True) -> Iterator[Block]:
        """Yield log P by blocks of contexts; unwanted ones cost the backbone only."""
        for contexts in self._encode(rows or self.rows_at_once()):
            if wanted(contexts.start):
                with full_precision():
                    log_probs = self._model.head.log_prob(contexts.hidden).cpu().numpy()
                yield Block(contexts.start, log_probs)

    def factors(self) -> FactorRows | None:
        """Return X = [H, 1, −log Z] and Y = [W, b, 1] for a log-linear head; log Z is streamed."""
        head = self._model.head
        if not isinstance(head, LogLinear):
            return None
        ones = head.weight.new_ones(head.vocab_size, 1)
        columns = [head.weight, *([] if head.bias is None else [head.bias.unsqueeze(1)]), ones]
        right = torch.cat(columns, 1).detach().cpu().double().numpy()
        return FactorRows(lambda wanted: self._left(head, wanted), right)

    def head(self) -> HeadFunction:
        """Return the head and the hidden states under it."""
        head = self._model.head

        def hidden(rows: int, wanted: Callable[[int], bool]) -> Iterator[tuple[int, Tensor]]:
            return ((each.start, each.hidden) for each in self._encode(rows) if wanted(each.start))

        return HeadFunction(head.log_prob, hidden, head.weight if isinstance(head, LogLinear) else None)

    def work(self) -> Work:
        """Return two operations a parameter and context, and what the parameters take."""
        parameters = list(self._model.parameters())
        head = self._model.head
        columns = head.embedding_size + 1 + int(head.bias is not None) if isinstance(head, LogLinear) else None
        numbers = sum(parameter.numel() for parameter in parameters)
        return Work(2.0 * numbers * self.shape[0], numbers * parameters[0].element_size(), columns)

    def tokens(self, ids: list[int]) -> list[str]:
        """Return each token as text."""
        return self.run.vocabulary.decode(np.asarray(ids, dtype=np.int64))

    def text_before(self, row: int, length: int) -> str:
        """Return the ``length`` tokens before the one that a row predicts, separated by spaces."""
        return " ".join(self.tokens(self._ids[max(0, row + 1 - length) : row + 1].tolist()))

    def sentence(self, row: int, length: int) -> str:
        """Return the line of the token that a row predicts; see `Source.sentence`."""
        where = sentence_around(row + 1, self._ends_line, tokens=len(self._ids), length=length)
        return " ".join(self.tokens(self._ids[where].tolist()))

    def _ends_line(self, place: int) -> bool:
        return self.tokens([int(self._ids[place])]) == [EOS]

    def _left(self, head: LogLinear, wanted: Callable[[int], bool]) -> Iterator[NDArray[np.float64]]:
        for contexts in self._encode(self.rows_at_once()):
            if not wanted(contexts.start):
                continue
            with full_precision():
                factors = head.factors(contexts.hidden)
                logits = torch.nn.functional.linear(factors.contexts, factors.weight, factors.bias)
                # The fused kernel of a forward pass, and log Z from one column: z − (z − log Z). Faster than logsumexp.
                log_partition = logits[:, :1] - torch.log_softmax(logits, 1)[:, :1]
                ones = torch.ones_like(log_partition)
                middle = [] if factors.bias is None else [ones]
                rows = torch.cat([factors.contexts, *middle, -log_partition], 1)
            yield rows.cpu().double().numpy()

    def _encode(self, rows: int) -> Iterator[_Contexts]:
        """Yield hidden states, the recurrent state carried from the first token to the last."""
        state = None
        for start in range(0, self.shape[0], rows):
            piece = self._ids[start : min(start + rows, self.shape[0]) + 1]
            with full_precision():
                hidden, state = self._model.hidden(piece[:-1].to(self._device).unsqueeze(1), state)
            yield _Contexts(start, hidden.squeeze(1))
