"""Columns and segments: every token once, each beside the one that follows it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softmax_bottleneck.errors import TrainingError
from softmax_bottleneck.training.epochs import bptt_segments, columns, lengths

sizes = st.integers(1, 20)


@given(length=st.integers(2, 400), batch_size=sizes)
def test_columns_are_the_text_cut_into_equal_pieces(length: int, batch_size: int) -> None:
    ids = np.arange(length)
    if length < 2 * batch_size:
        with pytest.raises(TrainingError, match=f"has {length} tokens, too few for batch_size={batch_size}"):
            columns(ids, batch_size)
        return
    data = columns(ids, batch_size)
    assert data.shape == (length // batch_size, batch_size)
    assert data.dtype == torch.int64
    assert torch.cat(list(data.T)).tolist() == list(range(length // batch_size * batch_size))


@given(rows=st.integers(2, 100), batch_size=sizes, bptt=st.integers(1, 120))
def test_segments_predict_every_token_but_the_first_row_once(rows: int, batch_size: int, bptt: int) -> None:
    data = torch.arange(rows * batch_size).reshape(rows, batch_size)
    pieces = list(bptt_segments(data, lengths(len(data), bptt)))
    assert torch.equal(torch.cat([piece.inputs for piece in pieces]), data[:-1])
    assert torch.equal(torch.cat([piece.targets for piece in pieces]), data[1:])
    assert all(1 <= len(piece.inputs) == len(piece.targets) <= bptt for piece in pieces)
    assert all(len(piece.inputs) == bptt for piece in pieces[:-1])


@given(rows=st.integers(2, 60), bptt=st.integers(1, 20), done=st.integers(0, 60))
def test_a_later_start_gives_the_same_segments(rows: int, bptt: int, done: int) -> None:
    data = torch.arange(rows * 2).reshape(rows, 2)
    pieces = list(bptt_segments(data, lengths(len(data), bptt)))
    rest = list(bptt_segments(data, lengths(len(data), bptt), start=done * bptt))
    expected = [(piece.inputs.tolist(), piece.targets.tolist()) for piece in pieces[done:]]
    assert [(piece.inputs.tolist(), piece.targets.tolist()) for piece in rest] == expected


def test_the_error_says_what_is_possible() -> None:
    with pytest.raises(TrainingError, match="at most 5 columns of two tokens are possible"):
        columns(np.arange(11), 6)
    assert columns(np.arange(11), 5).shape == (2, 5)


def test_the_text_is_copied() -> None:
    ids = np.arange(10)
    data = columns(ids, 2)
    data.zero_()
    assert ids.tolist() == list(range(10))
