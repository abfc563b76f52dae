"""Generation from unrelated prompts: exact where the extended logits have low rank, and measured where not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import rel_entr, softmax

from softmax_bottleneck import extended_logits
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.measure import linear_generation

VOCAB, FEATURES, LENGTH = 30, 4, 5
rng = np.random.default_rng(0)
EMBEDDINGS = rng.standard_normal((VOCAB, FEATURES))
OUTPUT = rng.standard_normal((VOCAB, FEATURES, VOCAB))
HISTORIES = [rng.integers(0, VOCAB, LENGTH) for _ in range(13)]
FUTURES = [[], *([one] for one in range(12)), [3, 4], [20, 5, 6]]


def bilinear(ids: np.ndarray) -> np.ndarray:
    """Return logits in which four features of the first tokens meet a matrix of the last one: rank 4 exactly."""
    ids = np.asarray(ids)
    return np.einsum("bf,bfz->bz", EMBEDDINGS[ids[:, :LENGTH]].sum(1), OUTPUT[ids[:, -1]])


def unrelated(ids: np.ndarray) -> np.ndarray:
    return np.stack([np.random.default_rng([*row.tolist(), 1]).standard_normal(VOCAB) for row in np.asarray(ids)])


def test_a_model_of_low_rank_is_continued_exactly() -> None:
    """The tokens are those that the model's own distributions give the same random numbers."""
    futures = FUTURES[1:]  # after none, the last token is the history's own
    source = extended_logits(bilinear, HISTORIES, futures, vocab_size=VOCAB)
    found = linear_generation(source, length=8, seed=3)
    assert found.residual < 1e-7
    assert found.weights.shape == (12,)
    assert (found.kl[1:] < 1e-12).all()  # the first distribution meets the prompt's own last token
    generator = np.random.default_rng(3)
    generator.choice(VOCAB, p=np.full(VOCAB, 1 / VOCAB))
    for step in range(1, 8):
        own = softmax(bilinear(np.append(HISTORIES[-1], found.tokens[:step])[None])[0])
        assert generator.choice(VOCAB, p=own) == found.tokens[step]


def test_the_divergence_is_that_of_the_model_itself() -> None:
    source = extended_logits(unrelated, HISTORIES, FUTURES, vocab_size=VOCAB)
    found = linear_generation(source, length=4, seed=1)
    assert 0.5 < found.residual <= 1
    for step in range(4):
        sequences = [np.append(history, found.tokens[:step]) for history in HISTORIES]
        logits = np.stack([unrelated(ids[None])[0] for ids in sequences])
        logits -= logits.mean(1, keepdims=True)
        P, Q = softmax(logits[-1]), softmax(found.weights @ logits[:-1])
        assert found.kl[step] == pytest.approx(rel_entr(P, Q).sum(), rel=1e-9)
    same = linear_generation(source, length=4, seed=1)
    assert np.array_equal(same.tokens, found.tokens)


def test_what_it_cannot_do() -> None:
    source = extended_logits(unrelated, HISTORIES[:1], FUTURES, vocab_size=VOCAB)
    with pytest.raises(ConfigurationError, match="the prompt is the last history, and at least one other"):
        linear_generation(source)
    with pytest.raises(ConfigurationError, match="length must be"):
        linear_generation(extended_logits(unrelated, HISTORIES, FUTURES, vocab_size=VOCAB), length=0)
