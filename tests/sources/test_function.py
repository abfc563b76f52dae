"""Functions and adapters: any framework's logits, measured as a matrix."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

import softmax_bottleneck as sb
from softmax_bottleneck.errors import ConfigurationError, MatrixError, SourceError
from softmax_bottleneck.sources import open_source

from .conftest import rows_of

M, d = 30, 4
rng = np.random.default_rng(0)
EMBEDDING, W = rng.standard_normal((M, d)), rng.standard_normal((M, d))
BATCHES = [rng.integers(0, M, (2, 7)), rng.integers(0, M, (3, 11)), rng.integers(0, M, (1, 40))]


def logits(ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """A bigram model with d hidden directions."""
    return np.asarray(EMBEDDING[ids] @ W.T)


FORMS: dict[str, Any] = {
    "numpy": logits,
    "torch": lambda ids: torch.from_numpy(logits(ids)).requires_grad_(),
    "lists": lambda ids: logits(ids).tolist(),
    "output": lambda ids: SimpleNamespace(logits=torch.from_numpy(logits(ids))),
    "mapping": lambda ids: {"logits": logits(ids), "loss": 0.0},
    "tuple": lambda ids: (logits(ids), None),
    "log-probabilities": lambda ids: torch.log_softmax(torch.from_numpy(logits(ids)), -1),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_function_is_the_matrix_of_its_answers(form: str) -> None:
    report = sb.rank(FORMS[form], data=BATCHES, vocab_size=M)
    rows = np.concatenate([logits(batch).reshape(-1, M) for batch in BATCHES])
    expected = sb.rank(rows, kind="logits")
    assert (report.rank.value, report.rank_centered.value) == (d + 1, d)
    np.testing.assert_allclose(report.spectrum.values, expected.spectrum.values, rtol=0, atol=1e-12 * 100)
    assert report.eps.dtype == "float64"


def test_blocks_of_any_size_across_batches_that_are_asked_once_a_pass() -> None:
    asked = []

    def counted(ids: NDArray[np.int64]) -> NDArray[np.float64]:
        asked.append(ids.shape)
        return logits(ids)

    source = open_source(counted, data=iter(BATCHES), vocab_size=M)
    expected = np.concatenate([logits(batch).reshape(-1, M) for batch in BATCHES])
    expected = expected - np.log(np.exp(expected).sum(1, keepdims=True))
    for rows in (5, 1, 3, 14, 100):
        np.testing.assert_allclose(rows_of(source, rows), expected, atol=1e-12)
        assert asked == [(2, 7), (3, 11), (1, 40)]


def _losses(ids: NDArray[np.int64]) -> list[float]:
    return [-log_softmax(logits(row), axis=1)[range(len(row) - 1), row[1:]].sum() for row in ids]


def test_each_position_predicts_the_token_after_it() -> None:
    count, total = sum(ids[:, 1:].size for ids in BATCHES), sum(sum(_losses(ids)) for ids in BATCHES)
    found = sb.perplexity(logits, data=BATCHES)
    assert (found.tokens, found.loss) == (count, pytest.approx(total / count))
    compared = sb.compare(logits, lambda ids: 2 * logits(ids), data=BATCHES)
    assert compared.contexts == count
    assert compared.nll is not None
    assert compared.nll[0] == pytest.approx(total / count)
    assert sb.open(logits, data=BATCHES).shape == (sum(ids.size for ids in BATCHES), M)
    ids = BATCHES[1]
    some = {"input_ids": ids, "labels": np.where(np.arange(11) < 8, -100, ids)}
    assert sb.perplexity(logits, data=some).tokens == 3 * len(ids)


@pytest.mark.parametrize("seen", [lambda ids: logits(ids[:, ::-1]), lambda ids: logits(ids)[:, -1]])
def test_logits_that_have_seen_the_next_token_or_are_of_the_last_position_have_no_perplexity(seen: Any) -> None:
    with pytest.raises(SourceError, match="does not say which token came after each context"):
        sb.perplexity(seen, data=BATCHES)
    compared = sb.compare(seen, seen, data=BATCHES)
    assert (compared.nll, compared.statistics["kl"].value) == (None, 0)


def test_padding_is_not_read() -> None:
    """Consecutive texts of one length are read together, whatever side they are padded on."""
    ids, mask = BATCHES[1], np.ones((3, 11), dtype=np.int64)
    mask[0, 7:] = mask[1, :4] = mask[2, 5:] = 0
    read = []

    def noted(given: NDArray[np.int64]) -> NDArray[np.float64]:
        read.append(given.tolist())
        return logits(given)

    open_source(noted, data=[{"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}]).prepare()
    assert read == [[ids[0, :7].tolist(), ids[1, 4:].tolist()], [ids[2, :5].tolist()]]


@pytest.mark.parametrize("place", [slice(None), -1, slice(-1, None)])
def test_rows_come_in_the_order_of_the_texts(place: Any) -> None:
    """Whatever their lengths are: the first contexts are those of the first texts.

    Answers for the last position alone may be (B, M), or (B, 1, M) as modules return it for generation.
    """
    texts = [rng.integers(0, M, length).tolist() for length in (1, 9, 3, 3, 12, 2)]
    expected = np.concatenate([logits(np.array(text if place == slice(None) else text[-1:])) for text in texts])
    for data in (texts, [texts[:4], texts[4:]], [texts], iter(texts), {"input_ids": texts}):
        source = open_source(lambda ids: logits(ids)[:, place], data=data)
        rows = rows_of(source)
        np.testing.assert_allclose(rows - rows[:, :1], expected - expected[:, :1], atol=1e-12)


def test_a_padding_mask_beside_the_ids_is_seen() -> None:
    """As a DataLoader over a TensorDataset gives them; what comes with ids and is not such a mask is left aside."""
    ids, mask = torch.from_numpy(BATCHES[0]), torch.ones(2, 7, dtype=torch.int64)
    assert open_source(logits, data=[(ids, mask), (ids, ids)]).shape == (28, M)
    mask[0, 5:] = 0
    assert open_source(logits, data=[(ids, ids), (ids, mask)]).shape == (26, M)
    for ragged in ([[1, 2, 3], [4, 5]], {"input_ids": [[1, 2, 3], [4, 5]]}):
        assert open_source(logits, data=[ids, ragged]).shape == (19, M)


def test_code_for_torch_is_given_tensors() -> None:
    embedding = torch.nn.Embedding(9, 9)
    ids = np.arange(8).reshape(2, 4)
    kinds: list[type] = []

    def function(ids: Any) -> Any:
        kinds.append(type(ids))
        return embedding(ids)

    report = sb.rank(function, data=[ids, ids, ids])
    assert kinds[0] is np.ndarray
    assert {*kinds[1:]} == {torch.Tensor}
    assert report.rank.value == 8
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        sb.rank(lambda ids: embedding(ids).other, data=[ids])


def test_the_type_of_the_logits_is_their_precision() -> None:
    """That of the whole first batch, not of its first row, which a padding token can make constant."""
    source = open_source(lambda ids: logits(ids).astype(np.float32), data=BATCHES, vocab_size=M)
    assert (source.dtype, source.precision.dtype, source.precision.assumed) == ("float32", "float32", True)
    rows = logits(np.arange(M))
    rows[0] = 0.5
    report = sb.rank(lambda ids: rows[ids], data=[np.arange(M).reshape(1, M)], vocab_size=M)
    assert (report.eps.dtype, report.rank.value) == ("float64", sb.rank(rows, kind="logits").rank.value)


class Model:
    """An adapter in three lines."""

    vocab_size = M

    def logits(self, ids: NDArray[np.int64]) -> Any:
        return logits(ids)


def test_an_adapter_brings_its_vocabulary() -> None:
    assert sb.rank(Model(), data=BATCHES).rank.value == d + 1
    assert sb.kld(Model(), data=BATCHES).kld == pytest.approx(sb.kld(logits, data=BATCHES, vocab_size=M).kld)


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"data": BATCHES, "vocab_size": 0}, ConfigurationError, "vocab_size must be at least 1, not 0"),
        ({"vocab_size": M}, ConfigurationError, "a function needs data=batches"),
        ({"data": "ptb", "vocab_size": M}, ConfigurationError, "a function needs data=batches"),
        ({"data": [], "vocab_size": M}, SourceError, "data is empty"),
        ({"data": 5, "vocab_size": M}, SourceError, r"batch 0 of the data must be ids of shape .* not \(\)"),
        ({"data": [[[0.5]]], "vocab_size": M}, SourceError, "ids of batch 0 .* must be whole numbers .*, not float64"),
        ({"data": torch.ones(1, 3).bfloat16()}, SourceError, "the data must be whole numbers .*: .*BFloat16"),
        ({"data": ["w1 w2"], "vocab_size": M}, SourceError, "a function reads token ids, not texts: encode them"),
        ({"data": [[1, 2], "w1"], "vocab_size": M}, SourceError, "a function reads token ids, not texts: encode them"),
        ({"data": {"test": [[1, 2]]}}, SourceError, "batch 0 .* has neither input_ids nor text, but test: give"),
        ({"data": BATCHES, "vocab_size": M + 1}, MatrixError, r"must return logits of shape \(2, 7, 31\) or \(2, 31\)"),
    ],
)
def test_what_a_function_needs(arguments: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        sb.rank(logits, **arguments)


def test_an_answer_that_changes_its_form() -> None:
    with pytest.raises(MatrixError, match="batch 1 of the data has 3 rows of logits instead of 33"):
        sb.rank(lambda ids: logits(ids) if len(ids) == 2 else logits(ids)[:, -1], data=BATCHES, vocab_size=M)


@pytest.mark.parametrize(
    ("output", "what"),
    [
        (None, "None"),
        ({}, "a dict"),
        ({"out": 1, "loss": 2}, "a dict with 'out', 'loss'"),
        ({"logits": None}, "a dict with 'logits'"),
        (SimpleNamespace(last_hidden_state=W), "a SimpleNamespace"),
        (SimpleNamespace(logits=None), "a SimpleNamespace"),
        ((None, 0.5), "a tuple"),
        (0.5, "a float"),
        ("text", "a str"),
    ],
)
def test_an_output_without_logits_is_named(output: Any, what: str) -> None:
    with pytest.raises(SourceError, match=f"returns {what}, without logits: measure a function .* that computes them"):
        sb.rank(lambda ids: output, data=BATCHES)
