"""Columns and segments of a stream: every token once, each beside the one that follows it, and the law of lengths."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softmax_bottleneck.errors import TrainingError
from softmax_bottleneck.training.epochs import bptt_segments, columns, lengths, validated_after


@given(length=st.integers(2, 400), batch_size=st.integers(1, 20))
def test_columns_are_the_text_cut_into_equal_pieces(length: int, batch_size: int) -> None:
    ids = np.arange(length)
    if length < 2 * batch_size:
        text = f"has {length} tokens, too few for batch_size={batch_size}: at most {length // 2} columns"
        with pytest.raises(TrainingError, match=text):
            columns(ids, batch_size)
        return
    data = columns(ids, batch_size)
    assert (data.shape, data.dtype) == ((length // batch_size, batch_size), torch.int64)
    assert torch.cat(list(data.T)).tolist() == list(range(length // batch_size * batch_size))
    data.zero_()
    assert ids.tolist() == list(range(length))  # the text is copied


def test_a_text_in_a_file_stays_there(tmp_path: Path) -> None:
    file = tmp_path / "ids"
    np.arange(23, dtype=np.int32).tofile(file)
    ids = np.memmap(file, dtype=np.int32, mode="c")
    data = columns(ids, 2)
    assert (data.dtype, data.data_ptr()) == (torch.int32, ids.ctypes.data)
    assert {piece.inputs.dtype for piece in bptt_segments(data, [4, 4, 2])} == {torch.int64}


@given(
    rows=st.integers(2, 500),
    bptt=st.integers(1, 80),
    deviation=st.sampled_from([0.0, 0.5, 5.0, 20.0]),
    epoch=st.integers(0, 5),
    data=st.data(),
)
def test_every_row_is_predicted_once_and_any_segment_can_come_next(
    rows: int, bptt: int, deviation: float, epoch: int, data: st.DataObject
) -> None:
    pieces = lengths(rows, bptt, deviation=deviation, seed=(3, epoch))
    assert sum(pieces) == rows - 1
    assert 1 <= min(pieces) <= max(pieces) <= bptt + 4 * deviation
    assert all(piece >= min(5, bptt) if deviation else piece == bptt for piece in pieces[:-1])
    text = torch.arange(2 * rows).reshape(rows, 2)
    found = list(bptt_segments(text, pieces))
    assert torch.equal(torch.cat([piece.inputs for piece in found]), text[:-1])
    assert torch.equal(torch.cat([piece.targets for piece in found]), text[1:])
    done = data.draw(st.integers(0, len(pieces) - 1))
    rest = list(bptt_segments(text, pieces, start=sum(pieces[:done])))
    assert [piece.inputs.tolist() for piece in rest] == [piece.inputs.tolist() for piece in found[done:]]


def test_the_law_of_random_lengths() -> None:
    """A mixture of N(70, 25), N(35, 25) at 19 : 1, rounded down, within five standard errors; repeatable."""
    drawn = np.array(lengths(70 * 20_000, 70, deviation=5.0))
    half = drawn < 52
    assert abs(half.mean() - 0.05) < 5 * np.sqrt(0.05 * 0.95 / len(drawn))
    for values, mean in ((drawn[~half], 69.5), (drawn[half], 34.5)):
        assert abs(values.mean() - mean) < 5 * 5 / np.sqrt(len(values))
        assert abs(values.std() - 5) < 5 * 5 / np.sqrt(2 * len(values))
    first, again, second = (lengths(1000, 35, deviation=5.0, seed=(7, epoch)) for epoch in (0, 0, 1))
    assert first == again != second


@given(sizes=st.lists(st.integers(1, 70), min_size=1, max_size=40), validations=st.integers(1, 50))
def test_validations_lie_evenly_in_an_epoch(sizes: list[int], validations: int) -> None:
    positions = sorted(validated_after(sizes, validations))
    assert positions[-1] == sum(sizes)
    assert len(positions) == min(validations, len(sizes))
    ends = list(itertools.accumulate(sizes))
    steps = [ends.index(position) for position in positions]
    between = [later - earlier for earlier, later in itertools.pairwise([-1, *steps])]
    assert max(between) - min(between) <= 1
