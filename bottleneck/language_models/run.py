"""A run trained by this tool, as a model, and on a split of a corpus."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from ..core.files import sha256_file
from ..core.full_precision import full_precision
from ..core.tensor_file import digest
from ..corpora import Corpus
from ..errors import ConfigurationError, SourceError
from ..heads import Head
from .checkpoint import MODEL, Run, corpus_of, load
from .layer import OutputWeights, weights_of
from .on_text import Model, ModelOnText
from .reading import Batch, read
from .source import Cost
from .text import Text

DTYPES = {"float32": torch.float32, "float64": torch.float64}
TOKENS_AT_ONCE = 512
PAIRS_AT_ONCE = 32
"""Tokens of a stream, or pairs, that the backbone reads at once; fixed numbers, so that every request for a context
gets the same bits."""


@final
class RunModel(Model):
    """A run as a model.

    Args:
        run: a run folder, or a loaded run, which is not changed.
        dtype: type of the evaluation, ``"float32"`` or ``"float64"``.
        device: device of the evaluation.

    Raises:
        ConfigurationError: for another dtype.
    """

    is_recurrent = True
    corpus: Corpus
    """The corpus that it reads."""

    def __init__(self, run: Run | str | Path, *, dtype: str = "float32", device: str = "cpu") -> None:
        if dtype not in [*DTYPES]:
            raise ConfigurationError(f"unknown dtype {dtype!r}; a run is evaluated in {' or '.join(DTYPES)}")
        self._is_loaded = isinstance(run, Run)
        loaded = run if isinstance(run, Run) else load(Path(run))
        self._device, self.dtype, self.body_dtype = torch.device(device), dtype, DTYPES[dtype]
        model = copy.deepcopy(loaded.model) if isinstance(run, Run) else loaded.model
        self.run = replace(loaded, model=model.to(self._device, self.body_dtype))
        self.about = {"path": str(loaded.path), "kind": "run", "head": model.config.head.name}

    @cached_property
    def identity(self) -> Mapping[str, str]:
        """Hash of the weights; those of a `Run` are those in memory, which may have changed."""
        return {"model": digest(self.run.model.state_dict()) if self._is_loaded else sha256_file(self.run.path / MODEL)}

    @property
    def skeleton(self) -> Head:
        """The run's head."""
        return self.run.model.head

    def head(self, sample: Tensor) -> Head:
        """Return the run's head."""
        return self.run.model.head

    def layer(self) -> OutputWeights:
        """Return the run's output layer."""
        return run_layer(self.run)

    def cost(self, tokens: int, contexts: int) -> Cost:
        """Return two operations for each parameter and token, and the memory of the parameters and hidden states."""
        numbers = sum(parameter.numel() for parameter in self.run.model.parameters())
        return Cost(2.0 * numbers * tokens, (numbers + contexts * self.skeleton.hidden_size) * self.body_dtype.itemsize)

    def encode(self, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Return the hidden states (L, B, d) of a batch, and the state after it."""
        batch = batch.to(self._device)
        if batch.contexts is None and self.run.model.backbone.context_lines is not None:
            raise SourceError(
                f"{self.about['path']} answers the lines before a line, and the extended logit matrix needs a "
                "model that continues any tokens: give one that reads a stream"
            )
        with full_precision():
            return self.run.model.hidden(batch.inputs, state, contexts=batch.contexts)


def run_layer(run: Run) -> OutputWeights:
    """Return the output layer of a run, whose backbone may not be loaded."""
    about = {"path": str(run.path), "kind": "run", "head": run.model.config.head.name}
    return weights_of(run.model.head, about, tied=run.model.config.tie_embeddings, tokenizer=run.vocabulary)


def open_run(
    run: Run | str | Path, *, data: Any = None, split: str = "test", dtype: str = "float32", device: str = "cpu"
) -> ModelOnText:
    """Open a run on a split: hidden states before every token that it predicts, teacher-forced.

    In a stream these are all tokens but the first, each with all tokens before it as context. A run whose backbone
    answers contexts reads the split as pairs (`reading.Pairs`).

    Args:
        run: see `RunModel`.
        data: a corpus or text other than the training corpus, see `corpora.read_data`; its tokens must be in the
            run's vocabulary.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        dtype: see `RunModel`.
        device: see `RunModel`.

    Raises:
        ConfigurationError: for another dtype.
        SourceError: for a split without contexts.
    """
    model = RunModel(run, dtype=dtype, device=device)
    corpus = model.corpus = corpus_of(model.run, data, split=split)
    lines = model.run.model.backbone.context_lines
    reading = read(corpus, split, lines=lines, length=TOKENS_AT_ONCE, at_once=PAIRS_AT_ONCE)
    starts = np.zeros(1, np.int64) if corpus.starts is None else corpus.starts
    more: Any = {"name": corpus.name, "split": split, "sha256": corpus.sha256}
    text = Text(ids=reading.ids, starts=starts, scored=reading.places, tokenizer=corpus.vocabulary, **more)
    return ModelOnText(model, reading, text)
