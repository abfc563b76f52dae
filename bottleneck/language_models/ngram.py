"""An n-gram model with interpolated modified Kneser–Ney smoothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigurationError, CorpusError

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]

FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
"""D₁, D₂ and D₃₊ where the counts of counts do not define them, as in KenLM (Heafield et al. 2013)."""


class _Order(NamedTuple):
    """The n-grams of one length, by context: the words after it, and the probability mass left for all words."""

    keys: Ids
    """Sorted keys of the contexts: the number of the context one word shorter, times M, plus the oldest word."""
    starts: Ids
    """Index at which each context's words begin, and, as the last entry, the end."""
    words: Ids
    shares: Reals
    """(count − discount) / the context's count, for each word."""
    left: Reals
    """γ, the probability mass that the discounts leave in each context; 1 for a context without a next word."""


@dataclass(frozen=True)
class KneserNey:
    r"""An n-gram model with modified Kneser–Ney smoothing, interpolated at every order.

    .. math:: P(w | h) = \frac{\max(c(h w) - D_{c(h w)}, 0)}{c(h)} + γ(h) P(w | h')

    where h' is h without its oldest word, the counts of all orders but the highest are those of distinct words
    before the n-gram, the discounts :math:`D_1, D_2, D_{3+}` come from each order's counts of counts, and the lowest
    order interpolates with 1/M. A text is one stream: n-grams cross the ends of sentences, as a recurrent model's state
    does.

    References:
        Chen and Goodman 1999, "An Empirical Study of Smoothing Techniques for Language Modeling", §3 and §4.1.6.
    """

    vocab_size: int
    """M."""
    orders: tuple[_Order, ...]
    """The n-grams of lengths 1 to n."""

    @classmethod
    def fit(cls, ids: Ids, *, order: int, vocab_size: int) -> KneserNey:
        """Count a text of ``ids``, int64, (N,).

        `ConfigurationError` for an ``order`` n below 1, `CorpusError` for a text shorter than the order.
        """
        if order < 1:
            raise ConfigurationError(f"the order of an n-gram model must be at least 1, not {order}")
        if len(ids) < order:
            raise CorpusError(f"a text of {len(ids)} tokens has no {order}-gram: give a longer text or a lower order")
        ids = ids.astype(np.int64)
        keys, contexts, orders = np.zeros(1, np.int64), np.zeros(len(ids), np.int64), []
        for length in range(1, order + 1):
            grams, counts = np.unique(contexts * vocab_size + ids[length - 1 :], return_counts=True)
            if length < order:
                # The n-grams one word longer: each token with its context of this length; the first tokens have none.
                oldest = ids[: len(ids) - length]
                longer, places = np.unique(contexts[1:] * vocab_size + oldest, return_inverse=True)
                pairs = np.unique(places * vocab_size + ids[length:])
                shorter = longer[pairs // vocab_size] // vocab_size
                grams, counts = np.unique(shorter * vocab_size + pairs % vocab_size, return_counts=True)
            orders.append(_smooth(grams, counts, keys, vocab_size))
            if length < order:
                keys, contexts = longer, places
        return cls(vocab_size, tuple(orders))

    @property
    def order(self) -> int:
        """n."""
        return len(self.orders)

    def prob(self, histories: Ids) -> Reals:
        """Return P(w | h) of all words, (B, M), float64, all positive; every row sums to one.

        The histories are int64, (B, n − 1), the last column the latest token; −1 stands before the start of the text.
        """
        unigrams = self.orders[0]
        base = np.full(self.vocab_size, unigrams.left[0] / self.vocab_size)
        base[unigrams.words] += unigrams.shares
        context = np.zeros(len(histories), np.int64)
        contexts = [context]
        for length, order in enumerate(self.orders[1:], start=1):
            context = _find(order.keys, context, histories[:, -length], self.vocab_size)
            contexts.append(context)
        rows, mass = np.zeros((len(histories), self.vocab_size)), np.ones(len(histories))
        for order, context in zip(self.orders[:0:-1], contexts[:0:-1], strict=True):
            (rows_with_context,) = np.nonzero(context >= 0)
            first, end = order.starts[context[rows_with_context]], order.starts[context[rows_with_context] + 1]
            row = np.repeat(rows_with_context, end - first)
            entry = np.arange(len(row)) + np.repeat(first - np.cumsum(end - first) + (end - first), end - first)
            rows[row, order.words[entry]] += mass[row] * order.shares[entry]
            mass[rows_with_context] *= order.left[context[rows_with_context]]
        rows += mass[:, None] * base
        return rows

    def log_prob(self, histories: Ids) -> Reals:
        """Return log P(w | h), nats; see `prob`."""
        log_probs: Reals = np.log(self.prob(histories))
        return log_probs


def histories(ids: Ids, order: int) -> Ids:
    """Return the n − 1 tokens up to and including each of ``ids``, (N, n − 1), with −1 before the first token."""
    padded = np.concatenate([np.full(max(0, order - 2), -1), ids])
    if order == 1:
        return np.empty((len(ids), 0), np.int64)
    windows: Ids = np.lib.stride_tricks.sliding_window_view(padded, order - 1)
    return windows


def _smooth(grams: Ids, counts: Ids, keys: Ids, vocab_size: int) -> _Order:
    """Return the discounted counts of sorted n-grams, whose keys are context × M + word."""
    contexts = grams // vocab_size
    discounts = np.array([0.0, *_discounts(counts)])[np.minimum(counts, 3)]
    totals = np.bincount(contexts, counts, len(keys))
    spared = np.bincount(contexts, discounts, len(keys))
    left = np.divide(spared, totals, out=np.ones(len(keys)), where=totals > 0)
    starts = np.searchsorted(contexts, np.arange(len(keys) + 1))
    return _Order(keys, starts, grams % vocab_size, (counts - discounts) / totals[contexts], left)


def _discounts(counts: NDArray[np.integer[Any]]) -> tuple[float, float, float]:
    """Return D₁, D₂ and D₃₊ by the counts of counts (Chen and Goodman 1999, eq. 26)."""
    n1, n2, n3, n4 = (int((counts == number).sum()) for number in (1, 2, 3, 4))
    if not (n1 and n2 and n3):
        return FALLBACK_DISCOUNTS
    y = n1 / (n1 + 2 * n2)
    discounts = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
    return discounts if all(0 < d < number for number, d in enumerate(discounts, start=1)) else FALLBACK_DISCOUNTS


def _find(keys: Ids, shorter: Ids, oldest: Ids, vocab_size: int) -> Ids:
    """Return the numbers of contexts, given their shorter contexts and oldest words; −1 for unseen contexts."""
    sought = shorter * vocab_size + oldest
    places = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
    return np.where((shorter >= 0) & (oldest >= 0) & (keys[places] == sought), places, -1)
