"""A run trained by this tool, evaluated on a split of a corpus."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from ...checkpoint import MODEL, Run, corpus_of, load
from ...errors import ConfigurationError, SourceError
from ...files import sha256_file
from ...full_precision import full_precision
from ...heads import Head, LogLinear
from ...spectrum import Precision, precision
from ..base import Bound, Work
from ..text import Words
from .model import ModelSource

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@final
class RunSource(ModelSource):
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
        self.text = Words(self._ids.numpy(), self.run.vocabulary)
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

    @property
    def layer(self) -> Head:
        """The run's head."""
        return self._model.head

    @property
    def log_linear(self) -> LogLinear | None:
        """The run's head, if it is log-linear."""
        head = self._model.head
        return head if isinstance(head, LogLinear) else None

    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield hidden states, the recurrent state carried from the first token to the last, whoever asks for which."""
        state, reached, at_once = None, 0, self.rows_at_once()
        for rows in ranges:
            if rows.start < reached:
                state, reached = None, 0
            while reached < rows.start:
                _, state = self._encode(range(reached, min(reached + at_once, rows.start)), state)
                reached = min(reached + at_once, rows.start)
            hidden, state = self._encode(rows, state)
            reached = rows.stop
            yield hidden

    def _encode(self, rows: range, state: Any) -> tuple[Tensor, Any]:
        ids = self._ids[rows.start : rows.stop].to(self._device).unsqueeze(1)
        with full_precision():
            hidden, state = self._model.hidden(ids, state)
        return hidden.squeeze(1), state

    def work(self) -> Work:
        """Return two operations a parameter and context, and what the parameters take."""
        parameters = list(self._model.parameters())
        head = self._model.head
        columns = head.embedding_size + 1 + int(head.bias is not None) if isinstance(head, LogLinear) else None
        numbers = sum(parameter.numel() for parameter in parameters)
        return Work(2.0 * numbers * self.shape[0], numbers * parameters[0].element_size(), columns)
