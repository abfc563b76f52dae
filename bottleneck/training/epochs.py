"""What a training run reads, epoch after epoch: the columns of a stream, or pairs in a new order every time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..corpora import Corpus
from ..errors import ConfigurationError, TrainingError
from ..language_models.reading import Batch, Pairs
from .config import TrainingConfig

HALF_LENGTH_PROBABILITY = 0.05
"""Probability that a random length is drawn around half of bptt (Merity et al. 2018, §4.1)."""
SHORTEST = 5
"""Tokens of the shortest random segment, as in the code of AWD-LSTM."""
LARGEST_DEVIATIONS = 4
"""Largest excess of a random length over bptt, in standard deviations; it bounds the memory of a step."""
RUN = 16
"""Consecutive pairs that stay together when pairs are shuffled: they share most lines of their contexts, and a model
encodes each line of a batch once. A batch of 64 pairs has about 100 such lines, and 640 if each pair is drawn alone."""


def columns(ids: NDArray[np.integer[Any]], batch_size: int) -> Tensor:
    """Cut a stream into ``batch_size`` equal columns, one after the other: (N,) → (N // B, B).

    The tokens after the last full row are left out. Ids in a file (`numpy.memmap`) stay in the file, in their own type;
    others are copied.
    """
    length = len(ids) // batch_size
    if length < 2:
        raise TrainingError(
            f"the training text has {len(ids)} tokens, too few for batch_size={batch_size}: "
            f"at most {len(ids) // 2} columns of two tokens are possible"
        )
    by_column = ids[: length * batch_size].reshape(batch_size, length).T
    return torch.from_numpy(by_column if isinstance(ids, np.memmap) else by_column.copy())


def lengths(rows: int, bptt: int, *, deviation: float = 0.0, seed: Sequence[int] = (0,)) -> list[int]:
    """Return the lengths of the segments of one epoch; their targets are all ``rows`` of the columns but the first.

    With a standard deviation σ each length is drawn from N(bptt, σ²), or with a probability of
    `HALF_LENGTH_PROBABILITY` from N(bptt / 2, σ²), rounded down, and is at least `SHORTEST` (or bptt) and at most
    bptt + `LARGEST_DEVIATIONS` σ. Without one every segment has the length ``bptt``. The last segment takes the
    remaining rows.
    """
    total, least = rows - 1, min(SHORTEST, bptt)
    if not deviation:
        drawn = np.full(-(-total // bptt), bptt)
    else:
        generator, most = np.random.default_rng(seed), -(-total // least)
        means = np.where(generator.random(most) < HALF_LENGTH_PROBABILITY, bptt / 2, bptt)
        longest = int(bptt + LARGEST_DEVIATIONS * deviation)
        drawn = generator.normal(means, deviation).astype(np.int64).clip(least, longest)
    ends = np.minimum(np.cumsum(drawn), total)
    return [int(length) for length in np.diff(ends, prepend=0) if length]


def bptt_segments(data: Tensor, lengths: Sequence[int], *, start: int = 0) -> Iterator[Batch]:
    """Yield each segment's rows as inputs, int64, and as targets the rows one further.

    ``start``, the end of a segment, skips all segments before it.
    """
    position = 0
    for length in lengths:
        if position >= start:
            piece = data[position : position + length + 1].long().contiguous()
            yield Batch(piece[:-1], piece[1:])
        position += length


class Epochs(ABC):
    """The training split in batches. Subclasses are final.

    Args:
        settings: batch sizes and lengths.
        seed: of everything that is drawn.
        part: columns of every batch that this process takes.
    """

    carries: bool
    """Whether a batch starts in the state after the one before it, and an epoch in the initial state."""

    def __init__(self, settings: TrainingConfig, *, seed: int, part: slice) -> None:
        self.settings, self.seed, self.part = settings, seed, part

    @abstractmethod
    def lengths(self, epoch: int) -> list[int]:
        """Return by how much each batch of an epoch moves the position on."""

    def steps(self, epochs: int) -> int:
        """Return the number of updates of a run of so many epochs, unless it stops early."""
        if not self.settings.bptt_deviation:
            return epochs * len(self.lengths(0))
        return sum(len(self.lengths(epoch)) for epoch in range(epochs))

    @abstractmethod
    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from the position ``start``, which is 0 or the end of a batch."""

    @abstractmethod
    def counts(self, vocab_size: int) -> Tensor:
        """Return how often each token is there, (M,), int64."""


@final
class StreamEpochs(Epochs):
    """The columns of a text, ``data`` (rows, B), in segments."""

    carries = True

    def __init__(self, data: Tensor, settings: TrainingConfig, *, seed: int, part: slice = slice(None)) -> None:
        super().__init__(settings, seed=seed, part=part)
        self.data = data

    def lengths(self, epoch: int) -> list[int]:
        """Return the tokens of each segment."""
        deviation = self.settings.bptt_deviation
        return lengths(len(self.data), self.settings.bptt, deviation=deviation, seed=(self.seed, epoch))

    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Return the segments; see `Epochs.batches`."""
        return bptt_segments(self.data[:, self.part], self.lengths(epoch), start=start)

    def counts(self, vocab_size: int) -> Tensor:
        """Count one column at a time: they may be larger than memory."""
        counts = torch.zeros(vocab_size, dtype=torch.int64)
        for column in self.data.T:
            counts += torch.bincount(column.contiguous(), minlength=vocab_size)
        return counts


@final
class PairEpochs(Epochs):
    """Pairs, shuffled for every epoch in runs of `RUN`; pairs beyond the last full batch are left out of that epoch.

    The loss of a batch is the mean over its tokens. Processes that train together take the mean of their means, so that
    a token of a process with shorter lines weighs a little more.

    Raises:
        ConfigurationError: for random segment lengths or a part of the predictions, which pairs do not have.
        TrainingError: there are fewer pairs than a batch takes.
    """

    carries = False

    def __init__(self, pairs: Pairs, settings: TrainingConfig, *, seed: int, part: slice = slice(None)) -> None:
        super().__init__(settings, seed=seed, part=part)
        for name, value, only in (
            ("bptt_deviation", settings.bptt_deviation, 0),
            ("loss_fraction", settings.loss_fraction, 1),
        ):
            if value != only:
                raise ConfigurationError(
                    f"training.{name}={value:g} is for models that read a stream; this one reads pairs of a line and "
                    f"the lines before it: leave it at {only}"
                )
        if len(pairs) < settings.batch_size:
            raise TrainingError(
                f"the training text has {len(pairs)} pairs, too few for batch_size={settings.batch_size}"
            )
        self.pairs = pairs

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


def epochs(
    corpus: Corpus, settings: TrainingConfig, *, seed: int, lines: int | None, part: slice = slice(None)
) -> Epochs:
    """Return the training split of a corpus in batches.

    ``lines`` is the model's `Backbone.context_lines`; see `Epochs` for the rest.

    Raises:
        TrainingError: the split is too short for a batch.
        CorpusError: the model reads pairs, and the split has none.
        ConfigurationError: for random segment lengths or a part of the predictions of pairs.
    """
    if lines is None:
        return StreamEpochs(columns(corpus.split("train"), settings.batch_size), settings, seed=seed, part=part)
    pairs = Pairs(corpus, "train", lines=lines, at_once=settings.batch_size)
    return PairEpochs(pairs, settings, seed=seed, part=part)
