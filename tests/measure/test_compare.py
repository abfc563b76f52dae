"""Where one model beats another, against the two matrices held whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from softmax_bottleneck import compare, dump
from softmax_bottleneck.errors import ConfigurationError, SourceError
from softmax_bottleneck.language_models import ModelOnText, checkpoint
from softmax_bottleneck.language_models.text import Text
from softmax_bottleneck.sources import open_source


@pytest.mark.parametrize("rows_at_once", [None, 11])
def test_the_largest_margins_each_way(
    rows_at_once: int | None, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one block, and in several."""
    first, second = open_source(runs["mos"]), open_source(runs["softmax"])
    if rows_at_once:
        monkeypatch.setattr(ModelOnText, "rows_at_once", lambda self: rows_at_once)
    assert compare(first, first).first_better == ()
    found = compare(first, second, examples=3)
    matrices = [np.concatenate([block.log_probs for block in s.blocks()]).astype(np.float64) for s in (first, second)]
    matrices = [matrix - np.logaddexp.reduce(matrix, 1)[:, None] for matrix in matrices]
    nll = np.stack([-matrix[np.arange(len(matrix)), first.targets] for matrix in matrices])
    assert found.nll == pytest.approx(nll.mean(1), rel=1e-9)
    words = checkpoint.load(Path(first.description["path"])).vocabulary.tokens
    tokens = [words[token] for token in first.text.ids.tolist()]
    ends = [place + 1 for place, token in enumerate(tokens) if token == "<eos>"]
    lines = [(end, " ".join(tokens[start:end])) for start, end in zip([0, *ends], ends, strict=False)]
    for examples, margin in ((found.first_better, nll[1] - nll[0]), (found.second_better, nll[0] - nll[1])):
        order = np.argsort(-margin, kind="stable")[:3]
        assert [example.row for example in examples] == order.tolist()
        for example in examples:
            row = example.row
            assert abs(example.margin) == pytest.approx(margin[row])
            assert example.target == tokens[row + 1]
            assert example.context == " ".join(tokens[max(0, row - 29) : row + 1])
            assert example.reference == next(line for end, line in lines if end > row + 1)
            for matrix, top in zip(matrices, example.top, strict=True):
                likeliest = np.sort(np.exp(matrix[row]))[::-1][:5]
                np.testing.assert_allclose([each.probability for each in top], likeliest, rtol=1e-6)
                assert all(np.exp(matrix[row, words.index(each.token)]) >= likeliest[-1] for each in top)
    json.dumps(found.to_dict(), allow_nan=False)
    better = found.first_better[0]
    rows = dict(found.rows()[::-1])  # the first context
    assert f"… {better.context} ▸{better.target}◂".endswith(rows["mos is better"].removeprefix("…"))
    assert rows["mos"].startswith(f"−log P {better.nll[0]:.2f}; {better.top[0][0].token!r}")
    assert found._repr_html_().count("<th>mos is better</th>") == 3


@pytest.mark.parametrize(
    ("place", "length", "sentence"), [(0, 9, "abc."), (4, 9, "efg."), (7, 9, "efg."), (8, 9, "hij"), (5, 1, "efg")]
)
def test_the_sentence_around_a_token(place: int, length: int, sentence: str) -> None:
    ids, starts = np.frombuffer(b"abc.efg.hij", np.uint8).astype(np.int64), np.zeros(1, np.int64)
    text = Text(ids=ids, starts=starts, scored=np.arange(11), tokenizer=Letters())
    assert text.sentence(place, length) == sentence
    assert text.before(place, length) == "abc.efg.hij"[max(0, place - length) : place]


class Letters:
    """A letter a token, a line a sentence."""

    separator = ""

    def __len__(self) -> int:
        return 256

    def names(self, ids: list[int]) -> list[str]:
        return [chr(token) for token in ids]

    spelled = names

    def join(self, ids: list[int]) -> str:
        return "".join(self.names(ids))

    def ends_line(self, token: int) -> bool:
        return token == ord(".")


def test_a_store_stands_for_its_run(runs: dict[str, Path], tmp_path: Path) -> None:
    """It knows the targets and not the words: the other one names them."""
    mos, softmax = open_source(runs["mos"]), open_source(runs["softmax"])
    store, other = (open_source(dump(each, tmp_path / f"{id(each)}.zarr")) for each in (mos, softmax))
    by_run = compare(mos, softmax).first_better
    assert compare(store, softmax).first_better == by_run
    assert compare(store, other).first_better[0].target == f"<{store.targets[by_run[0].row]}>"


def test_tokens_that_one_model_lacks_fail_every_limit() -> None:
    rng = np.random.default_rng(0)
    z = rng.standard_normal((50, 30))
    more = np.concatenate([z, np.full((50, 1), np.log(np.exp(z).sum(1).mean() / 99))], 1)
    found = compare(more, z, kind="logits", max_kl=1.0)
    assert (found.passed, found.limits[0].end) == (False, None)
    assert "the 95 % interval has no known end" in str(found)
    assert "no limit passes: tokens that one of the two lacks hold over 0.001 of the probability" in found.notes


def test_roundoff_makes_no_context_an_example(runs: dict[str, Path]) -> None:
    single, double = (open_source(runs["mos"], dtype=dtype) for dtype in ("float32", "float64"))
    found = compare(single, double)
    assert found.statistics["log_ratio"].value != 0
    assert (found.first_better, found.second_better) == ((), ())


def test_sources_on_other_tokens_are_refused(runs: dict[str, Path]) -> None:
    one, other = open_source(runs["mos"], contexts=20), open_source(runs["softmax"], contexts=20, split="valid")
    row = int(np.argmax(one.targets != other.targets))
    place = f"context {row} is followed by token {one.targets[row]} and by token {other.targets[row]}; compare"
    with pytest.raises(SourceError, match=place):
        compare(one, other)
    with pytest.raises(ConfigurationError, match="examples must be at least 0, not -1"):
        compare(one, one, examples=-1)
    P, *models = np.log(np.random.default_rng(0).dirichlet(np.ones(5), (3, 8)))
    assert [each.statistics for each in compare(P, models)] == [compare(P, each).statistics for each in models]
    blocks, whole = compare(P, [models[0][:3], models[0][3:]]), compare(P, models[0])
    assert blocks.statistics == whole.statistics


def test_a_matrix_is_on_the_tokens_of_a_run(runs: dict[str, Path]) -> None:
    """The run says which tokens follow the rows of the matrix."""
    run, other = open_source(runs["softmax"]), open_source(runs["mos"])
    matrix = np.concatenate([block.log_probs for block in other.blocks()])
    expected = compare(other, run).statistics
    for name, each in compare(matrix, run).statistics.items():
        assert (each.value, each.standard_error) == (expected[name].value, expected[name].standard_error)


@pytest.mark.parametrize("mask", [-np.inf, -1e9])
@pytest.mark.parametrize("is_reference", [True, False])
def test_a_truncation_is_said(mask: float, is_reference: bool) -> None:
    """It leaves out other tokens in each context; a mask of the model leaves out the same one in all of them."""
    random = np.random.default_rng(0)
    whole = random.standard_normal((40, 30))
    whole -= np.logaddexp.reduce(whole, 1)[:, None]
    nucleus = np.where(np.argsort(np.argsort(-whole, 1), 1) < 10, whole, mask)
    masked = np.where(np.arange(30) == 7, mask, whole)
    for some, is_said in ((nucleus, True), (masked, False)):
        some = np.where(some == mask, mask, some - np.logaddexp.reduce(some, 1)[:, None])
        found = compare(*((some, whole) if is_reference else (whole, some)), max_kl=1e9)
        assert any("as truncations do (top-k, top-p)" in note for note in found.notes) == is_said
        why = "no limit passes: numbers of other tokens are left out in each context"
        assert (why in found.notes, found.passed) == (is_said, not is_said and is_reference)


def test_a_difference_in_one_of_many_contexts() -> None:
    """No row of the sample that shows roundoff is among those that differ."""
    P = log_softmax(np.random.default_rng(0).standard_normal((2100, 4)), 1)
    Q = P.copy()
    Q[1] = Q[1, ::-1]
    assert compare(P, Q).difference.rank.value == 1


def test_a_context_without_a_common_token() -> None:
    P = log_softmax(np.random.default_rng(0).standard_normal((5, 4)), 1)
    P[0], Q = np.log([1, 0, 0, 0], where=np.eye(4)[0] > 0, out=np.full(4, -np.inf)), P.copy()
    Q[0] = P[0, ::-1]
    found = compare(P, Q)
    assert (found.difference, found.statistics["kl"].value) == (None, None)


def test_tokens_of_one_model_alone_at_a_temperature() -> None:
    """A limit is not kept where they hold more than a thousandth of the probability."""
    logits = np.tile([1.0, 0.0, -7.0], (20, 1)) + 0.01 * np.random.default_rng(0).standard_normal((20, 3))
    P, Q = log_softmax(logits, 1), log_softmax(logits[:, :2], 1)
    assert [compare(P, Q, max_kl=0.1, temperature=t).passed for t in (1.0, 3.0)] == [True, False]
    share = softmax(logits / 3, 1)[:, 2].mean()
    assert f"the others hold {share:.2g} of the probability" in compare(P, Q, temperature=3.0).notes[0]
