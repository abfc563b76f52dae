"""A run trained by this tool, on a split of a corpus."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from ..checkpoint import MODEL, Run, corpus_of, load
from ..errors import ConfigurationError, SourceError
from ..files import sha256_file
from ..full_precision import full_precision
from ..heads import Head
from .on_text import Cost, ModelOnText
from .text import Words

DTYPES = {"float32": torch.float32, "float64": torch.float64}
TOKENS_AT_ONCE = 512
"""Tokens that the backbone reads at once; a fixed number, so that every request for a context gets the same bits."""


@final
class RunOnText(ModelOnText):
    """Hidden states of every token of a split but the last, each with all tokens before it as context.

    Args:
        run: a run folder, or a loaded run, which is not changed.
        data: a corpus other than the training corpus; its tokens must be in the run's vocabulary.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        contexts: number of contexts to use, from the first; by default all.
        dtype: type of the evaluation, ``"float32"`` or ``"float64"``.
        device: device of the evaluation.

    Raises:
        ConfigurationError: for another dtype.
        SourceError: for a split without contexts, or with fewer than ``contexts``.
    """

    def __init__(
        self,
        run: Run | str | Path,
        *,
        data: str | None = None,
        split: str = "test",
        contexts: int | None = None,
        dtype: str = "float32",
        device: str = "cpu",
    ) -> None:
        if dtype not in DTYPES:
            raise ConfigurationError(f"unknown dtype {dtype!r}; a run is evaluated in {' or '.join(DTYPES)}")
        loaded = run if isinstance(run, Run) else load(Path(run))
        corpus = corpus_of(loaded, data)
        ids = corpus.split(split)
        available = len(ids) - 1
        if available < 1:
            raise SourceError(f"the {split} split of {corpus.name} has no context: it needs at least two tokens")
        if contexts is not None and not 1 <= contexts <= available:
            raise SourceError(f"--contexts must be between 1 and the {available:,} of this split, not {contexts:,}")
        self._ids = torch.from_numpy(ids[: (contexts or available) + 1])
        self._device, self._path, self._corpus = torch.device(device), loaded.path, corpus
        model = copy.deepcopy(loaded.model) if isinstance(run, Run) else loaded.model
        self._model = model.to(self._device, DTYPES[dtype])
        self.contexts, self.dtype = len(self._ids) - 1, dtype
        self.targets = self._ids[1:].numpy()
        self.text = Words(self._ids.numpy(), loaded.vocabulary)
        self.description = {
            "path": str(loaded.path),
            "kind": "run",
            "head": self._model.config.head.name,
            "corpus": corpus.name,
            "split": split,
        }

    @property
    def head(self) -> Head:
        """The run's head."""
        return self._model.head

    @cached_property
    def identity(self) -> Mapping[str, str]:
        """Hashes of the weights and the corpus."""
        return {"model": sha256_file(self._path / MODEL), "corpus": self._corpus.sha256}

    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield hidden states; the recurrent state is carried through all tokens before them."""
        number, hidden, state = -1, torch.empty(0), None
        for rows in ranges:
            pieces = []
            for wanted in range(rows.start // TOKENS_AT_ONCE, (rows.stop - 1) // TOKENS_AT_ONCE + 1):
                if wanted < number:
                    number, state = -1, None
                while number < wanted:
                    number += 1
                    hidden, state = self._encode(number * TOKENS_AT_ONCE, state)
                first = wanted * TOKENS_AT_ONCE
                pieces.append(hidden[max(0, rows.start - first) : rows.stop - first])
            yield pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _encode(self, start: int, state: Any) -> tuple[Tensor, Any]:
        ids = self._ids[start : min(start + TOKENS_AT_ONCE, self.contexts)].to(self._device).unsqueeze(1)
        with full_precision():
            hidden, state = self._model.hidden(ids, state)
        return hidden.squeeze(1), state

    @property
    def cost(self) -> Cost:
        """Two operations for each parameter and context, and the memory of the parameters."""
        numbers = sum(parameter.numel() for parameter in self._model.parameters())
        return Cost(2.0 * numbers * self.contexts, numbers * DTYPES[self.dtype].itemsize)
