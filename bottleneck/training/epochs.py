"""What a training run reads, epoch after epoch: the columns of a stream, or pairs in a new order every time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

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
        sizes = np.full(-(-total // bptt), bptt)
    else:
        generator, most = np.random.default_rng(seed), -(-total // least)
        means = np.where(generator.random(most) < HALF_LENGTH_PROBABILITY, bptt / 2, bptt)
        longest = int(bptt + LARGEST_DEVIATIONS * deviation)
        sizes = generator.normal(means, deviation).astype(np.int64).clip(least, longest)
    ends = np.minimum(np.cumsum(sizes), total)
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


def validated_after(lengths: Sequence[int], validations: int) -> set[int]:
    """Return the positions in an epoch at which a model is validated, including the epoch's end.

    Validations come after equal numbers of segments, whose ``lengths`` are given, at most one for each segment.

    Example:
        >>> sorted(validated_after([10, 10, 5, 10], 2))
        [20, 35]
    """
    ends = [*accumulate(lengths)]
    validations = min(validations, len(ends))
    return {ends[-(-len(ends) * part // validations) - 1] for part in range(1, validations + 1)}


class Epochs:
    """The training split of a corpus in batches: the columns of a stream in segments, or shuffled pairs.

    Positions in a stream count its rows, and positions in pairs count batches. Pairs are shuffled for every epoch in
    runs of `RUN`, and those beyond the last full batch are left out of that epoch. The loss of a batch is the mean over
    its tokens; processes that train together take the mean of their means, so that a token of a process with shorter
    lines weighs a little more.

    Args:
        corpus: what is trained on.
        settings: batch sizes and lengths.
        seed: of everything that is drawn.
        lines: the model's `Backbone.context_lines`: it reads pairs, or, with ``None``, a stream.
        part: columns of every batch that this process takes.

    Raises:
        TrainingError: the split is too short for a batch.
        CorpusError: the model reads pairs, and the split has none.
        ConfigurationError: for random segment lengths or a part of the predictions of pairs.
    """

    def __init__(
        self, corpus: Corpus, settings: TrainingConfig, *, seed: int, lines: int | None, part: slice = slice(None)
    ) -> None:
        self.settings, self.seed, self.part = settings, seed, part
        self.pairs: Pairs | None = None
        if lines is None:
            self.data = columns(corpus.split("train"), settings.batch_size)
            return
        for name, default in (("bptt_deviation", 0), ("loss_fraction", 1)):
            if (value := getattr(settings, name)) != default:
                raise ConfigurationError(
                    f"training.{name}={value:g} is for models that read a stream; this one reads pairs of a line and "
                    f"the lines before it: leave it at {default}"
                )
        self.pairs = Pairs(corpus, "train", lines=lines, at_once=settings.batch_size)
        if len(self.pairs) < settings.batch_size:
            raise TrainingError(
                f"the training text has {len(self.pairs)} pairs, too few for batch_size={settings.batch_size}"
            )

    @property
    def carries(self) -> bool:
        """Whether a batch starts in the state after the one before it, and an epoch in the initial state."""
        return self.pairs is None

    def lengths(self, epoch: int) -> list[int]:
        """Return by how much each batch of an epoch moves the position on."""
        if self.pairs is not None:
            return [1] * (len(self.pairs) // self.settings.batch_size)
        deviation = self.settings.bptt_deviation
        return lengths(len(self.data), self.settings.bptt, deviation=deviation, seed=(self.seed, epoch))

    def steps(self, epochs: int) -> int:
        """Return the number of updates of a run of so many epochs, unless it stops early."""
        if not self.settings.bptt_deviation:
            return epochs * len(self.lengths(0))
        return sum(len(self.lengths(epoch)) for epoch in range(epochs))

    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from the position ``start``, which is 0 or the end of a batch."""
        if self.pairs is None:
            yield from bptt_segments(self.data[:, self.part], self.lengths(epoch), start=start)
            return
        runs = np.random.default_rng((self.seed, epoch)).permutation(-(-len(self.pairs) // RUN))
        order = (runs[:, None] * RUN + np.arange(RUN)).ravel()
        order = order[order < len(self.pairs)]
        size = self.settings.batch_size
        for number in range(start, len(order) // size):
            yield self.pairs.of(order[number * size : (number + 1) * size][self.part])

    def counts(self, vocab_size: int) -> Tensor:
        """Return how often each token is predicted, of a stream how often it is there: (M,), int64."""
        counts = torch.zeros(vocab_size, dtype=torch.int64)
        # One column at a time: they may be larger than memory.
        for column in self.data.T if self.pairs is None else [torch.from_numpy(self.pairs.targets)]:
            counts += torch.bincount(column.contiguous(), minlength=vocab_size)
        return counts
