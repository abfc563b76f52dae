"""A run trained by this tool, on a split of a corpus."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.files import sha256_file
from ..core.full_precision import full_precision
from ..core.tensor_file import digest
from ..errors import ConfigurationError, SourceError
from ..heads import Head
from ..spectrum.blocks import as_array
from .checkpoint import MODEL, Run, corpus_of, load
from .on_text import Ids, ModelOnText
from .reading import PADDING, read
from .source import Cost
from .text import Words

DTYPES = {"float32": torch.float32, "float64": torch.float64}
TOKENS_AT_ONCE = 512
PAIRS_AT_ONCE = 32
"""Tokens of a stream, or pairs, that the backbone reads at once; fixed numbers, so that every request for a context
gets the same bits."""


@final
class RunOnText(ModelOnText):
    """Hidden states before every token that a split predicts, teacher-forced.

    In a stream these are all tokens but the first, each with all tokens before it as context. A run whose backbone
    answers contexts reads the split as pairs (`reading.Pairs`).

    Args:
        run: a run folder, or a loaded run, which is not changed.
        data: a corpus or text other than the training corpus, see `corpora.read_data`; its tokens must be in the
            run's vocabulary.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        dtype: type of the evaluation, ``"float32"`` or ``"float64"``.
        device: device of the evaluation.

    Raises:
        ConfigurationError: for another dtype.
        SourceError: for a split without contexts.
    """

    def __init__(
        self,
        run: Run | str | Path,
        *,
        data: Any = None,
        split: str = "test",
        dtype: str = "float32",
        device: str = "cpu",
    ) -> None:
        if dtype not in [*DTYPES]:
            raise ConfigurationError(f"unknown dtype {dtype!r}; a run is evaluated in {' or '.join(DTYPES)}")
        self._is_loaded = isinstance(run, Run)
        loaded = run if isinstance(run, Run) else load(Path(run))
        corpus = corpus_of(loaded, data, split=split)
        lines = loaded.model.backbone.context_lines
        self._reading = read(corpus, split, lines=lines, length=TOKENS_AT_ONCE, at_once=PAIRS_AT_ONCE)
        self.contexts = len(self._reading.places)
        if self.contexts < 1:
            raise SourceError(f"the {split} split of {corpus.name} has no context: it needs at least two tokens")
        self._device, self.corpus, self.split = torch.device(device), corpus, split
        model = copy.deepcopy(loaded.model) if isinstance(run, Run) else loaded.model
        self._model = model.to(self._device, DTYPES[dtype])
        self.run = replace(loaded, model=self._model)
        self.dtype = dtype
        self.targets = self._reading.targets
        self.description = {
            "path": str(loaded.path),
            "kind": "run",
            "head": self._model.config.head.name,
            "corpus": corpus.name,
            "split": split,
        }

    @cached_property
    def text(self) -> Words:  # type: ignore[override]
        """The text up to the last target."""
        places = self._reading.places[: self.contexts]
        ids = np.asarray(self._reading.ids[: places[-1] + 1], dtype=np.int64)
        return Words(ids, places, self.run.vocabulary, self.corpus.starts)

    @property
    def is_whole(self) -> bool:
        """Whether all contexts of the split are used."""
        return self.contexts == len(self._reading.places)

    @property
    def is_stream(self) -> bool:
        """Whether the text is one stream of tokens, in place of several texts or of lines that answer others."""
        return self._reading.carries

    @property
    def full_head(self) -> Head:
        """The run's head."""
        return self._model.head

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """Hashes of the weights and the corpus; the weights of a `Run` are those in memory, which may have changed."""
        weights = digest(self._model.state_dict()) if self._is_loaded else sha256_file(self.run.path / MODEL)
        return {"model": weights, "corpus": self.corpus.sha256}

    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield hidden states; the recurrent state of a stream is carried through all tokens before them."""
        number, hidden, state, starts = -1, torch.empty(0), None, self._reading.starts
        for rows in ranges:
            pieces = []
            first_batch, last_batch = np.searchsorted(starts, [rows.start, rows.stop - 1], side="right") - 1
            for wanted in range(int(first_batch), int(last_batch) + 1):
                if wanted < number:
                    number, state = -1, None
                while number < wanted:
                    number = number + 1 if self.is_stream else wanted
                    hidden, state = self._encode(number, state if self.is_stream else None)
                first = int(starts[wanted])
                pieces.append(hidden[max(0, rows.start - first) : rows.stop - first])
            yield pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _encode(self, number: int, state: Any) -> tuple[Tensor, Any]:
        batch = self._reading.batch(number).to(self._device)
        with full_precision():
            hidden, state = self._model.hidden(batch.inputs, state, contexts=batch.contexts)
        return hidden.transpose(0, 1)[(batch.targets != PADDING).T], state

    @property
    def ids(self) -> Ids:
        """All tokens up to the last target, (N,)."""
        return self.text.ids

    longest_input = 1 << 30
    """Largest number of tokens that a backbone reads."""

    def next_log_probs(self, histories: Ids) -> Callable[[Ids], NDArray[Any]]:
        """Return a function from a future to log P of the token after each of n histories with it, (n, M).

        The histories, (n, L), are read once.

        Raises:
            SourceError: for a run that answers the lines before a line.
        """
        if self._model.backbone.context_lines is not None:
            raise SourceError(
                f"{self.description['path']} answers the lines before a line, and the extended logit matrix needs a "
                "model that continues any tokens: give one that reads a stream"
            )
        hidden, state = self._read(histories.T, None)

        def after(future: Ids) -> NDArray[Any]:
            last = self._read(np.tile(future[:, None], len(histories)), state)[0] if len(future) else hidden
            with full_precision():
                return as_array(self.head.log_prob(last[-1]))

        return after

    def _read(self, ids: Ids, state: Any) -> tuple[Tensor, Any]:
        with full_precision():
            return self._model.hidden(torch.from_numpy(ids.copy()).to(self._device), state)

    @property
    def body_cost(self) -> Cost:
        """Two operations for each parameter and context, and the memory of the parameters."""
        numbers = sum(parameter.numel() for parameter in self._model.parameters())
        return Cost(2.0 * numbers * self.contexts, numbers * DTYPES[self.dtype].itemsize)
