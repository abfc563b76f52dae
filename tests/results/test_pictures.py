"""Every kind of result draws itself, or says in one sentence that it has nothing to draw; answers and what follows."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import softmax_bottleneck as sb
from softmax_bottleneck.cli.outputs import aligned
from softmax_bottleneck.errors import Function, OutputError, Parameter, Sentence
from softmax_bottleneck.evaluation.dialog import SCORES, Beam, Bleu, DialogScores, Score
from softmax_bottleneck.measure import estimate_cost
from softmax_bottleneck.results.base import KINDS, Result

ROWS = np.log(np.random.default_rng(0).dirichlet(np.ones(6), 40))
W = np.random.default_rng(1).standard_normal((40, 3))
H = np.random.default_rng(2).standard_normal((60, 3))


@pytest.fixture(scope="module")
def results(runs: dict[str, Path]) -> dict[str, Result]:
    """One result of each kind that can be drawn, and of those that cannot."""
    softmax = str(runs["softmax"])
    head = sb.heads.build("softmax", hidden_size=3, vocab_size=40)
    head.weight.data = torch.tensor(W, dtype=torch.float32)
    logits = (H @ W.T).astype(np.float32)
    scores = sb.eval(softmax)
    bleu = Bleu(3, Beam(), dict.fromkeys(SCORES, Score(0.2, 0.1, 0.4)))
    return {
        "rank": sb.rank(ROWS),
        "rank of a checkpoint": sb.rank(sb.open(softmax), checkpoint=True),
        "kld": sb.kld(ROWS, pairs=50),
        "gradient": sb.gradient(softmax),
        "need": sb.need(softmax),
        "head": sb.head(W),
        "head-statistics": sb.head_statistics(W, hidden=H),
        "directions": sb.head_statistics(W).weight,
        "argmaxable": sb.argmaxable(W),
        "identification": sb.identify(logits, W, kind="logits")[0],
        "comparison": sb.compare({"a": ROWS, "b": np.roll(ROWS, 1, 0)})[0],
        "bleu": bleu,
        "dialog": DialogScores(scores, dict.fromkeys(("head", "seed", "embedding_size", "parameters")), bleu),
        "perplexity": scores,
        "cost": estimate_cost(sb.open(ROWS)),
    }


NOT_ASKED = {"head-statistics", "directions", "bleu", "cost"}
"""Kinds of results without a verdict."""
NOTHING = {"perplexity", "cost", "training-cost"}


def test_every_kind_is_read_back_and_draws_or_says_that_it_cannot(results: dict[str, Result], tmp_path: Path) -> None:
    assert set(results) | NOTHING >= {kind for kind, each in KINDS.items() if "softmax_bottleneck" in each.__module__}
    for kind, result in results.items():
        result.save(tmp_path / f"{kind}.json")
        again = sb.load(tmp_path / f"{kind}.json")
        assert type(again) is type(result)
        assert again.rows() == result.rows()
        assert again.verdict == result.verdict
        assert (again.columns(), again.to_dict()) == (result.columns(), result.to_dict())
        assert again.to_frame().to_csv() == result.to_frame().to_csv()
        assert kind in NOT_ASKED or result.verdict
        assert json.loads(json.dumps(again.to_dict())) == json.loads((tmp_path / f"{kind}.json").read_text("utf-8"))
        file = tmp_path / f"{kind}.png"
        if kind in NOTHING:
            with pytest.raises(OutputError, match=f"kind '{kind}' has nothing to draw"):
                result.plot(file)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            axes = result.plot(file)
        assert file.stat().st_size > 5_000
        assert axes.get_xlabel()


@pytest.mark.parametrize("kind", ["rank", "kld", "gradient", "need", "head", "argmaxable", "identification",
                                  "comparison", "perplexity", "dialog"])  # fmt: skip
def test_an_answer_begins_with_a_verdict_and_ends_with_what_follows(results: dict[str, Result], kind: str) -> None:
    rows = [row for row in results[kind].rows() if row[0] != "all numbers"]
    assert rows[0][0] == "verdict"
    if kind not in ("rank", "comparison"):
        assert rows[-1][0] == "next"
        assert "bottleneck" not in rows[-1][1]


def test_several_results_are_drawn_beside_each_other_and_what_one_lacks_is_said(results: dict[str, Result]) -> None:
    both = sb.identify(H @ W.T, {"one": W, "other": W[:, :2] @ np.ones((2, 3))}, kind="logits")
    assert both.plot() is not None
    with pytest.raises(OutputError, match="none of them is formed: pairs=1000 draws pairs"):
        sb.kld(ROWS).plot()
    again = type(results["argmaxable"]).from_dict(results["argmaxable"].to_dict())
    zeros, none = np.zeros((4, 3)), "no singular value stands above roundoff"
    for plot, why in (
        (again.plot, r"not saved as JSON; the result of argmaxable\(\) draws them"),
        (sb.argmaxable(zeros).plot, r"no token has a finite margin as the argmax to draw; head\(\) draws W"),
        (sb.head(zeros).plot, none), (sb.head_statistics(W, hidden=zeros).plot, none),
        (sb.rank(zeros, kind="matrix").plot, none), (sb.singular_values([zeros]).plot, none),
    ):  # fmt: skip
        with pytest.raises(OutputError, match=why):
            plot()
    with pytest.raises(OutputError, match="nothing was tested"):
        replace(results["identification"], span=None, ellipse=None, mean=None).plot()


def test_python_and_commands_are_told_their_own_names(results: dict[str, Result]) -> None:
    for kind, python, command in (
        ("gradient", "need() measures", "'bottleneck need' measures"),
        ("kld", "pairs='all' gives", "--pairs all gives"),
        ("head", "argmaxable() decides each token; need(),", "'bottleneck argmaxable' decides each token; 'bottleneck"),
        ("perplexity", "compare() says", "'bottleneck compare' says"),
    ):
        label, text = next(row for row in results[kind].rows() if row[0] == "next")
        assert text.startswith(python)
        assert command in aligned([(label, text)])
    assert ".details()" in str(results["rank"])
    assert "--details" in aligned(results["rank"].rows())


def test_a_sentence_holds_other_sentences() -> None:
    inner = Sentence("a larger ", Parameter("max_memory"))
    outer = Sentence(inner, " or ", Function("rank"))
    assert (str(outer), outer.for_command) == (
        "a larger max_memory or rank()",
        "a larger --max-memory or 'bottleneck rank'",
    )
    assert sb.BottleneckError(outer).for_command == outer.for_command
