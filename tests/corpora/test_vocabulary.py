"""Tokens to ids and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmax_bottleneck.corpora import UNK, Vocabulary
from softmax_bottleneck.errors import CorpusError

TOKENS = st.lists(st.text(max_size=5), max_size=40)


@given(TOKENS)
def test_decoding_undoes_encoding(tokens: list[str]) -> None:
    vocabulary = Vocabulary.of(tokens)
    ids = vocabulary.encode(tokens)
    assert ids.dtype == np.int64
    assert ids.shape == (len(tokens),)
    assert vocabulary.decode(ids) == tokens


@given(TOKENS)
def test_ids_are_given_in_order_of_first_appearance(tokens: list[str]) -> None:
    vocabulary = Vocabulary.of(tokens)
    assert sorted(set(tokens), key=tokens.index) == list(vocabulary.tokens)
    assert [vocabulary.index[token] for token in vocabulary.tokens] == list(range(len(vocabulary)))


@pytest.mark.parametrize(("tokens", "stand_in"), [(["a", UNK], UNK), (["a"], "a known token")])
def test_an_unknown_token_is_refused_even_where_unk_exists(tokens: list[str], stand_in: str) -> None:
    with pytest.raises(CorpusError, match=f"^my.txt, line 3: the token 'b' .* write {stand_in} in its place$"):
        Vocabulary.of(tokens).encode(["a", "b"], "my.txt, line 3")


@pytest.mark.parametrize("outside", [-1, 2])
def test_an_id_outside_the_vocabulary_is_refused(outside: int) -> None:
    with pytest.raises(CorpusError, match=f"the id {outside} is not a token: the vocabulary's ids are 0 to 1"):
        Vocabulary(("a", "b")).decode(np.array([0, outside]))


def test_a_token_may_come_once() -> None:
    with pytest.raises(CorpusError, match="holds the token 'a' twice"):
        Vocabulary(("a", "b", "a"))
