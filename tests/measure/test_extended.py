"""The extended logit matrix against a model asked one sequence at a time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from softmax_bottleneck import extended_logits, kld, pairwise_kld, rank
from softmax_bottleneck.errors import BottleneckError, ConfigurationError
from softmax_bottleneck.language_models.checkpoint import load
from softmax_bottleneck.measure import extended_structure
from softmax_bottleneck.measure.extended import power_law_quantity
from softmax_bottleneck.sources import extended as module
from softmax_bottleneck.sources import open_source

HISTORIES = [[3, 5, 7], [1, 2, 3, 4], [9, 9, 1], [2], [30, 31, 32, 33]]
FUTURES: list[list[int]] = [[], [4], [8, 1, 2]]


def _whole(source: object) -> NDArray[np.float64]:
    return np.concatenate([block.log_probs for block in source.blocks()])  # type: ignore[attr-defined]


@pytest.mark.parametrize("head", ["softmax", "mos"])
def test_a_run_by_brute_force(runs: dict[str, Path], head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    run = open_source(runs[head], dtype="float64")
    matrix = extended_logits(run, HISTORIES, FUTURES)
    M = run.shape[1]
    model = load(runs[head]).model.double()
    expected = np.empty((len(HISTORIES), len(FUTURES), M))
    for i, history in enumerate(HISTORIES):
        for j, future in enumerate(FUTURES):
            with torch.no_grad():
                hidden, _ = model.hidden(torch.tensor([*history, *future]).unsqueeze(1))
                log_p = model.head.log_prob(hidden[-1])[0].numpy()
            expected[i, j] = log_p - log_p.mean()
    whole = expected.reshape(len(HISTORIES), -1)
    assert matrix.shape == whole.T.shape
    np.testing.assert_allclose(_whole(matrix), whole.T, atol=1e-12)
    np.testing.assert_allclose(matrix.future(2), expected[:, 2].T, atol=1e-12)
    assert kld(matrix).kld == pytest.approx(pairwise_kld(expected.reshape(-1, M), kind="logits").kld, rel=1e-9)
    # Blocks need not end where futures do.
    parts = [block.log_probs for block in matrix.blocks([range(5, M + 7), range(2 * M - 1, 2 * M + 1)])]
    np.testing.assert_allclose(np.concatenate(parts), whole.T[[*range(5, M + 7), 2 * M - 1, 2 * M]], atol=1e-12)


def test_a_function_and_its_structure() -> None:
    """A bigram of hidden states: one future more, and the history is forgotten."""
    generator = np.random.default_rng(0)
    first, second = np.log(generator.dirichlet(np.ones(6), 6)), np.log(generator.dirichlet(np.ones(6), (6, 6)))

    def trigram(ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return second[ids[:, -2], ids[:, -1]] if ids.shape[1] > 1 else first[ids[:, -1]]

    matrix = extended_logits(trigram, [[a, b] for a in range(6) for b in range(6)], [[], [1], [2, 5]], vocab_size=6)
    whole = _whole(matrix)
    module = torch.nn.Embedding.from_pretrained(torch.from_numpy(first))
    forms = [module, lambda ids: module(ids), SimpleNamespace(vocab_size=6, logits=lambda ids: first[ids])]
    for form in forms:
        np.testing.assert_array_equal(
            _whole(extended_logits(form, [[0], [1], [2]], [[], [3]], vocab_size=6)),
            _whole(extended_logits(lambda ids: first[ids], [[0], [1], [2]], [[], [3]], vocab_size=6)),
        )
    table = second - second.mean(2, keepdims=True)
    np.testing.assert_allclose(whole[:6].T.reshape(6, 6, 6), table)
    np.testing.assert_allclose(whole[6:12].T.reshape(6, 6, 6), np.broadcast_to(table[:, 1][None], (6, 6, 6)))
    np.testing.assert_allclose(whole[12:], np.broadcast_to(table[2, 5][:, None], (6, 36)))


def test_the_power_law_is_not_fitted_to_roundoff() -> None:
    """The Gram matrix resolves fewer values than float64 has: of rank 13, those after it are its own noise."""
    rng = np.random.default_rng(0)
    states, outputs = rng.standard_normal((30, 12)), rng.standard_normal((12, 30))
    exact = extended_logits(
        lambda ids: states[ids].cumsum(1)[:, -1] @ outputs,
        rng.integers(30, size=(80, 3)),
        [[], [1], [2]],
        vocab_size=30,
    )
    found = extended_structure(exact)
    assert found.law.last <= np.linalg.matrix_rank(_whole(exact), rtol=1e-9) < 20


def test_structure_by_a_whole_decomposition(runs: dict[str, Path]) -> None:
    matrix = extended_logits(runs["mos"], 40, 12, dtype="float64", history_length=5, future_length=3)
    found = extended_structure(matrix, ranks=[1, 4, 40])
    whole = _whole(matrix)
    U, values, V = np.linalg.svd(whole, full_matrices=False)
    np.testing.assert_allclose(found.values[:10], values[:10], rtol=1e-8)
    M = matrix.vocab
    log_p = whole.reshape(12, M, 40) - np.logaddexp.reduce(whole.reshape(12, M, 40), 1)[:, None]
    for r, kl in zip(found.ranks, found.kl, strict=True):
        logits = ((U[:, :r] * values[:r]) @ V[:r]).reshape(12, M, 40)
        log_q = logits - np.logaddexp.reduce(logits, 1)[:, None]
        assert kl == pytest.approx((np.exp(log_p) * (log_p - log_q)).sum(1).mean(), abs=1e-10)
    assert found.kl[-1] == pytest.approx(0, abs=1e-9)
    assert found.low < found.law.exponent < found.high
    assert "too few" in str(power_law_quantity(np.ones(9), 2))
    noisy = np.concatenate([np.arange(1, 21.0) ** -0.5, np.full(80, 1e-9)])  # behind the rank is roundoff
    law = power_law_quantity(noisy, 20).value
    assert (law.exponent, law.last) == (pytest.approx(0.5), 20)
    # The jackknife over futures by hand.
    left_out = []
    for group in np.array_split(np.arange(12), 10):
        rest = np.delete(whole.reshape(12, M, 40), group, 0).reshape(-1, 40)
        line = np.polyfit(np.log(np.arange(1, 21)), np.log(np.linalg.svd(rest, compute_uv=False)[:20]), 1)
        left_out.append(-line[0])
    error = np.sqrt(9 / 10 * np.sum((np.array(left_out) - np.mean(left_out)) ** 2))
    assert (found.high - found.low) / 2 == pytest.approx(2.2621571628 * error, rel=1e-6)


def test_drawn_from_the_text(runs: dict[str, Path]) -> None:
    run = open_source(runs["softmax"])
    one, same = (extended_logits(run, 7, 3, seed=1) for _ in range(2))
    assert one.identity == same.identity
    assert one.identity != extended_logits(run, 7, 3, seed=2).identity
    assert run.text is not None
    ids = run.text.ids.tolist()
    for drawn in (*one.histories, *one.futures):
        assert any(ids[i : i + len(drawn)] == drawn.tolist() for i in range(len(ids)))
    words = len(set(ids))
    every = extended_logits(run, words, 1, history_length=1).histories
    assert sorted(history.item() for history in every) == sorted(set(ids))  # none twice
    with pytest.raises(ConfigurationError, match="different histories of 1 tokens cannot be drawn from a text of"):
        extended_logits(run, words + 1, 1, history_length=1)


def test_ids_take_the_place_of_a_text() -> None:
    """For a model without a tokenizer and for a function; as many directions as histories say nothing of the model."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=60, **sizes)).eval()
    ids = np.arange(120) % 60
    for source, size in ((model, {}), (lambda ids: np.eye(60)[ids], {"vocab_size": 60})):
        matrix = extended_logits(source, 7, 3, data=ids, **size)
        assert all((np.diff(drawn) % 60 == 1).all() for drawn in (*matrix.histories, *matrix.futures))
    report = rank(extended_logits(model, [[1, 2], [3, 4]], [[], [5]]))
    assert (report.rank.value, report.source["kind"]) == (2, "extended")
    assert report.verdict.startswith("too few histories: 2 show no rank above 2")
    assert dict(report.rows())["matrix"].endswith(" pairs of future and next token × 2 histories")


def infinite(ids: Any) -> Any:
    return np.full((len(ids), 3), -np.inf)


REFUSED: list[tuple[Any, Any, Any, dict[str, Any], str]] = [
    (np.eye(3), [[1]], [[1]], {}, "does not hold log-probabilities of longer futures"),
    ("mos", [[]], [[1]], {}, "each of at least 1 tokens"),
    ("mos", [[10**6]], [[1]], {}, "ids outside 0 to"),
    ("mos", 2, 1, {"history_length": 0}, "2 different histories of 0 tokens cannot be drawn"),
    (infinite, [[0]], [[]], {"vocab_size": 5, "split": "valid"}, "split does not apply to a function, which"),
    (infinite, 3, [[1]], {"vocab_size": 3}, "cannot be drawn from a text of 0"),
    (infinite, [[1]], [[1]], {"vocab_size": 3}, "not all finite"),
    (infinite, 7, 3, {"vocab_size": 60, "data": ["w1 w2"]}, "a function reads token ids, not texts"),
    ("opened", 2, 1, {"split": "valid"}, "split does not apply to an opened source"),
]


@pytest.mark.parametrize(("model", "histories", "futures", "options", "sentence"), REFUSED)
def test_what_is_refused(
    model: Any, histories: Any, futures: Any, options: dict[str, Any], sentence: str, runs: dict[str, Path]
) -> None:
    source = {"mos": runs["mos"], "opened": open_source(runs["mos"])}.get(model) if isinstance(model, str) else model
    with pytest.raises(BottleneckError, match=sentence):
        extended_logits(source, histories, futures, **options)


def test_ranks_that_there_are_not(runs: dict[str, Path]) -> None:
    with pytest.raises(ConfigurationError, match="ranks must lie between 1 and the 2"):
        extended_structure(extended_logits(runs["mos"], 2, 2), ranks=[3])
