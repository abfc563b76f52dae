"""Copies of contexts, and of whole texts, in the errors and the limits of a comparison."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from softmax_bottleneck import compare
from softmax_bottleneck.measure.comparison import Comparison
from softmax_bottleneck.measure.standard_errors import (
    Sampling,
    half_width,
    standard_error,
    wilson_end,
)
from softmax_bottleneck.sources import open_source


@pytest.mark.parametrize("order", ["one after another", "again and again", "shuffled"])
@pytest.mark.parametrize(("different", "copies"), [(30, 8), (1, 50)])
def test_copies_of_contexts_prove_nothing_more(different: int, copies: int, order: str) -> None:
    rng = np.random.default_rng(0)
    logits, errors = (
        rng.standard_normal((different, 8)) @ rng.standard_normal((8, 60)),
        rng.standard_normal((different, 60)),
    )
    both = {"base": logits, "near": logits + 0.1 * errors, "far": logits + 0.12 * errors}
    places = np.repeat(np.arange(different), copies)
    if order == "again and again":
        places = places.reshape(different, copies).T.ravel()
    elif order == "shuffled":
        places = np.random.default_rng(0).permutation(places)
    limits: Any = {"kind": "logits", "max_kl": 1.0, "min_agreement": 0.2}
    once, found = (compare({name: each[at] for name, each in both.items()}, **limits)
                   for at in (np.arange(different), places))  # fmt: skip
    assert f"{different * (copies - 1):,} of {different * copies:,} contexts repeat others" in found["near"].notes[-1]
    for one, many in zip(once, found, strict=True):
        assert many.passed is one.passed is (different > 1)
        assert many.by_context["kl"].tolist() == one.by_context["kl"][places].tolist()
        ends = [[limit.end for limit in each.limits] for each in (many, one)]
        if order == "shuffled":  # which blocks they are in is then another question
            assert all(end is None or abs(end - true) < 0.1 for end, true in zip(*ends, strict=True))
        else:
            assert ends[0] == pytest.approx(ends[1])


@pytest.mark.parametrize(("copies", "effective"), [(100, 3), (900, 1)])
def test_a_context_of_many_copies_is_not_one_of_many(copies: int, effective: int) -> None:
    """Each mean is nearly that of the one context: the ends are on the safe side of the truth in 97.5 % of draws."""
    rng, wrong = np.random.default_rng(0), np.zeros(2)
    unit = np.repeat(np.arange(101), np.r_[copies, np.ones(100, int)])
    for _ in range(200):
        agree, kl = (rng.random(101) < 0.9)[unit].astype(float), rng.exponential(size=101)[unit]
        sampling = Sampling.of([kl, agree], None, np.searchsorted(unit, unit))
        assert (sampling.different, sampling.effective) == (101, effective)
        errors = [standard_error(each[sampling.order], sampling.starts) for each in (agree, kl)]
        least = wilson_end(agree.mean(), errors[0], sampling.blocks, effective) if sampling.blocks > 1 else 0.0
        wrong += least > 0.9, kl.mean() + half_width(sampling.blocks) * errors[1] < 1.0
    assert wrong.max() <= 10


@pytest.mark.parametrize("copies", [30, 100, 900])
def test_a_text_of_many_copies_is_not_one_of_many(copies: int) -> None:
    """The contexts of a text share most of their values, so that its copies hide how few texts there are."""
    rng, held = np.random.default_rng(0), 0
    text = np.repeat(np.arange(101), np.r_[copies, np.ones(100, int)])
    for _ in range(100):
        values = (rng.standard_normal(101)[:, None] + 0.1 * rng.standard_normal((101, 20)))[text].ravel()
        starts, first = np.arange(0, len(values), 20), np.searchsorted(text, text)[:, None] * 20 + np.arange(20)
        sampling = Sampling.of([values], starts, first.ravel())
        error = standard_error(values[sampling.order], sampling.starts)
        held += sampling.blocks < 2 or abs(values.mean()) <= half_width(sampling.blocks) * error
    assert held >= 85


def test_places_where_n_gram_models_see_the_same_words_stay_apart() -> None:
    found = compare("kn3:python-docs", "kn2:python-docs", contexts=500, examples=0)
    assert found.different == 500
    rows = np.stack([np.concatenate([each.log_probs for each in open_source(f"kn{order}:python-docs", contexts=500)
                     .blocks()]) for order in (3, 2)])  # fmt: skip
    assert len(np.unique(rows[0], axis=0)) < 450
    assert compare(rows[0], rows[1], examples=0).different < 450  # of whose texts nothing is known


def test_contexts_of_few_tokens_are_not_copies() -> None:
    """Of 20,000 tokens each context has eight, as under a grammar: most columns are masked in all of them."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(60):
        chosen, logits = rng.choice(20_000, 8, replace=False), rng.standard_normal((2, 8))
        both = np.full((2, 20_000), -np.inf, np.float32)
        both[:, chosen] = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        rows.append(both)
    P, Q = np.stack(rows, 1)
    found = compare(P, Q, examples=0)
    assert found.different == 60
    assert not any("repeat" in note for note in found.notes)
    assert compare(*(np.concatenate([each, each]) for each in (P, Q)), examples=0).different == 60


def test_copies_of_texts_are_seen_by_their_tokens(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    W, texts = rng.normal(size=(30, 8)).astype(np.float32), rng.integers(30, size=(12, 9))
    texts[:, :2] = 3, 4  # all begin alike

    def compared(ids: np.ndarray) -> Comparison:
        states = 0.5 * np.cumsum(W[ids], 1)  # each context has all tokens before it
        save_file({"hidden_states": states, "token_ids": ids}, tmp_path / "states.safetensors")
        for name, scale in (("P", 1.0), ("Q", 1.2)):
            save_file({"weight": scale * W}, tmp_path / f"{name}.safetensors")
        heads = (f"{tmp_path / name}.safetensors:weight" for name in "PQ")
        return compare(*(open_source(str(tmp_path / "states.safetensors"), head=each) for each in heads), max_kl=9.0)

    once, many = compared(texts), compared(np.concatenate([texts] * 5))
    assert once.different == many.different == 12 * 8
    assert once.blocks == many.blocks >= 10
    for name in ("kl", "log_ratio"):
        assert many.statistics[name].standard_error == pytest.approx(once.statistics[name].standard_error)
    assert many.limits[0].end == pytest.approx(once.limits[0].end)
    assert any("384 of 480 contexts repeat others" in note for note in many.notes)
    assert not any("repeat" in note for note in once.notes)


def test_copies_of_a_text_are_one_text() -> None:
    """Texts with one beginning stay texts of their own."""
    rng = np.random.default_rng(0)
    texts = [np.r_[np.zeros(3), rng.normal(size=5)] for _ in range(20)]
    values, starts = np.concatenate([*texts, *texts[:8]]), np.arange(0, 28 * 8, 8)
    first = np.array([int(np.argmax(values == each)) for each in values])
    sampling = Sampling.of([values], starts, first)
    assert (sampling.different, sampling.effective, len(sampling.starts)) == (160, 142, 20)
    weights = 1.0 + (np.arange(20) < 8)
    sums = weights * (np.array([text.sum() for text in texts]) - 8 * values.mean())
    expected = math.sqrt(20 / 19 * (sums @ sums)) / len(values)
    assert standard_error(values[sampling.order], sampling.starts) == pytest.approx(expected)
    few = Sampling.of([values], starts[:4], first)  # too few texts to tell how they differ
    assert few.different == 101
    assert sorted(few.order) == list(range(len(values)))
