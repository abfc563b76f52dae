"""Modified Kneser–Ney against its recursion written out with dictionaries, one probability at a time."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmax_bottleneck.errors import ConfigurationError, CorpusError
from softmax_bottleneck.language_models.ngram import KneserNey, histories

M = 7
Gram = tuple[int, ...]


class _Recursion:
    """Chen and Goodman's interpolated model by its definition."""

    def __init__(self, ids: list[int], order: int) -> None:
        self.counts: dict[int, Counter[Gram]] = {
            order: Counter(tuple(ids[i : i + order]) for i in range(len(ids) - order + 1))
        }
        for length in range(order - 1, 0, -1):
            before = defaultdict(set)
            for i in range(len(ids) - length):
                before[tuple(ids[i + 1 : i + length + 1])].add(ids[i])
            self.counts[length] = Counter({gram: len(words) for gram, words in before.items()})
        self.discounts = {length: self._discounts(counts) for length, counts in self.counts.items()}

    @staticmethod
    def _discounts(counts: Counter[Gram]) -> list[float]:
        n = [sum(value == number for value in counts.values()) for number in range(5)]
        if n[1] and n[2] and n[3]:
            y = n[1] / (n[1] + 2 * n[2])
            found = [number - (number + 1) * y * n[number + 1] / n[number] for number in (1, 2, 3)]
            if all(0 < d < number for number, d in enumerate(found, 1)):
                return found
        return [0.5, 1.0, 1.5]

    def prob(self, word: int, history: Gram) -> float:
        counts, d = self.counts[len(history) + 1], self.discounts[len(history) + 1]
        lower = self.prob(word, history[1:]) if history else 1 / M
        after = [value for gram, value in counts.items() if gram[:-1] == history]
        if not after:
            return lower
        own = counts[(*history, word)]
        left = sum(d[min(value, 3) - 1] for value in after)
        return (max(own - d[min(own, 3) - 1], 0) * (own > 0) + left * lower) / sum(after)


texts = st.lists(st.integers(0, M - 1), min_size=5, max_size=80)


@settings(max_examples=60, deadline=None)
@given(text=texts, order=st.integers(1, 4), more=st.lists(st.integers(0, M - 1), min_size=1, max_size=6))
def test_it_is_the_recursion(text: list[int], order: int, more: list[int]) -> None:
    model, slow = KneserNey.fit(np.array(text), order=order, vocab_size=M), _Recursion(text, order)
    rows = model.prob(histories(np.array(more), order))
    np.testing.assert_allclose(rows.sum(1), 1, rtol=1e-12)
    assert (rows > 0).all()
    for place, row in enumerate(rows):
        history = tuple(more[max(0, place + 2 - order) : place + 1]) if order > 1 else ()
        np.testing.assert_allclose(row, [slow.prob(word, history) for word in range(M)], rtol=1e-10)


def test_discounts_from_counts_of_counts() -> None:
    """A text long enough for Chen and Goodman's own discounts at every order, checked the same way."""
    generator = np.random.default_rng(0)
    text = generator.choice(M, size=400, p=np.arange(1, M + 1) / 28)
    slow = _Recursion(text.tolist(), 3)
    assert slow.discounts[3] != [0.5, 1.0, 1.5]
    model = KneserNey.fit(text, order=3, vocab_size=M)
    for history in ((0, 0), (6, 5), (3, 6), (1, 1)):
        found = model.prob(np.array([history]))[0]
        np.testing.assert_allclose(found, [slow.prob(word, history) for word in range(M)], rtol=1e-10)


def test_what_cannot_be_counted() -> None:
    with pytest.raises(ConfigurationError, match="must be at least 1, not 0"):
        KneserNey.fit(np.arange(5), order=0, vocab_size=M)
    with pytest.raises(CorpusError, match="a text of 3 tokens has no 4-gram"):
        KneserNey.fit(np.arange(3), order=4, vocab_size=M)
