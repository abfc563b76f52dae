"""What a training run reads, epoch after epoch: the columns of a stream, or pairs in a new order every time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from torch import Tensor

from ..corpora import Corpus
from ..errors import ConfigurationError, TrainingError
from ..language_models.reading import Batch, Pairs
from .batches import bptt_segments, columns, lengths
from .config import TrainingConfig

RUN = 16
"""Consecutive pairs that stay together when pairs are shuffled: they share most lines of their contexts, and a model
encodes each line of a batch once. A batch of 64 pairs has about 100 such lines, and 640 if each pair is drawn alone."""


class Epochs(ABC):
    """The training split in batches. Subclasses are final."""

    carries: bool
    """Whether a batch starts in the state after the one before it, and an epoch in the initial state."""

    @abstractmethod
    def lengths(self, epoch: int) -> list[int]:
        """Return by how much each batch of an epoch moves the position on."""

    def steps(self, epochs: int) -> int:
        """Return the number of updates of a run of so many epochs, unless it stops early."""
        return sum(len(self.lengths(epoch)) for epoch in range(epochs))

    @abstractmethod
    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from the position ``start``, which is 0 or the end of a batch."""

    @abstractmethod
    def counts(self, vocab_size: int) -> Tensor:
        """Return how often each token is there, (M,), int64."""

    @abstractmethod
    def share(self, part: slice) -> Epochs:
        """Return some columns of every batch: those of one process."""


@final
class StreamEpochs(Epochs):
    """The columns of a text in segments; see `batches`.

    Args:
        data: (rows, B), the columns.
        settings: lengths of the segments.
        seed: of random lengths.
    """

    carries = True

    def __init__(self, data: Tensor, settings: TrainingConfig, *, seed: int) -> None:
        self.data, self.settings, self.seed = data, settings, seed

    def lengths(self, epoch: int) -> list[int]:
        """Return the tokens of each segment; see `Epochs.lengths`."""
        deviation = self.settings.bptt_deviation
        return lengths(len(self.data), self.settings.bptt, deviation=deviation, seed=(self.seed, epoch))

    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Return the segments; see `Epochs.batches`."""
        return bptt_segments(self.data, self.lengths(epoch), start=start)

    def counts(self, vocab_size: int) -> Tensor:
        """Count one column at a time: they may be larger than memory."""
        counts = torch.zeros(vocab_size, dtype=torch.int64)
        for column in self.data.T:
            counts += torch.bincount(column.contiguous(), minlength=vocab_size)
        return counts

    def share(self, part: slice) -> StreamEpochs:
        """Return some columns; see `Epochs.share`."""
        return StreamEpochs(self.data[:, part], self.settings, seed=self.seed)


@final
class PairEpochs(Epochs):
    """Pairs, shuffled for every epoch in runs of `RUN`; pairs beyond the last full batch are left out of that epoch.

    The loss of a batch is the mean over its tokens. Processes that train together take the mean of their means, so that
    a token of a process with shorter lines weighs a little more.

    Args:
        pairs: of the training split.
        settings: the number of pairs in a batch.
        seed: of the orders.
        part: columns of every batch that this process takes.

    Raises:
        ConfigurationError: for random segment lengths or a part of the predictions, which pairs do not have.
        TrainingError: there are fewer pairs than a batch takes.
    """

    carries = False

    def __init__(self, pairs: Pairs, settings: TrainingConfig, *, seed: int, part: slice = slice(None)) -> None:
        if settings.bptt_deviation:
            raise ConfigurationError(
                f"training.bptt_deviation={settings.bptt_deviation:g} is for models that read a stream; this one reads "
                "pairs of a line and the lines before it, which are as long as they are: leave it at 0"
            )
        if settings.loss_fraction < 1:
            raise ConfigurationError(
                f"training.loss_fraction={settings.loss_fraction:g} is for models that read a stream; this one reads "
                "pairs of a line and the lines before it: leave it at 1"
            )
        if len(pairs) < settings.batch_size:
            raise TrainingError(
                f"the training text has {len(pairs)} pairs, too few for batch_size={settings.batch_size}"
            )
        self.pairs, self.settings, self.seed, self.part = pairs, settings, seed, part

    def lengths(self, epoch: int) -> list[int]:
        """Return a 1 for each batch: positions count batches."""
        return [1] * (len(self.pairs) // self.settings.batch_size)

    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield batches of shuffled runs; see `Epochs.batches`."""
        runs = np.random.default_rng((self.seed, epoch)).permutation(-(-len(self.pairs) // RUN))
        order = (runs[:, None] * RUN + np.arange(RUN)).ravel()
        order = order[order < len(self.pairs)]
        size = self.settings.batch_size
        for number in range(start, len(order) // size):
            yield self.pairs.of(order[number * size : (number + 1) * size][self.part])

    def counts(self, vocab_size: int) -> Tensor:
        """Count the predicted tokens."""
        return torch.from_numpy(np.bincount(self.pairs.targets, minlength=vocab_size))

    def share(self, part: slice) -> PairEpochs:
        """Return some columns; see `Epochs.share`."""
        return PairEpochs(self.pairs, self.settings, seed=self.seed, part=part)


def epochs(corpus: Corpus, settings: TrainingConfig, *, seed: int, lines: int | None) -> Epochs:
    """Return the training split of a corpus in batches.

    Args:
        corpus: what is trained on.
        settings: batch sizes and lengths.
        seed: of everything that is drawn.
        lines: the model's `Backbone.context_lines`.

    Raises:
        TrainingError: the split is too short for a batch.
        CorpusError: the model reads pairs, and the split has none.
        ConfigurationError: for random segment lengths or a part of the predictions of pairs.
    """
    if lines is None:
        return StreamEpochs(columns(corpus.split("train"), settings.batch_size), settings, seed=seed)
    return PairEpochs(Pairs(corpus, "train", lines=lines, at_once=settings.batch_size), settings, seed=seed)
