"""Small models of SpamLang."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from softmax_bottleneck.bench.spam import HEADS, SpamCell, bench_spam, train_spam
from softmax_bottleneck.figures.studies import spam


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("vocab", [20, 400])
def test_it_is_learned_from_enough_texts(head: str, vocab: int) -> None:
    """Twenty symbols are, also under outputs that are never a target."""
    state = torch.get_rng_state()
    found = train_spam(SpamCell(vocab, 16, head, 20), steps=200)
    assert found["accuracy"] > 0.95
    assert 0 < found["nats"] < 0.3
    assert found["chance"] == pytest.approx(math.log(20))
    assert torch.equal(torch.get_rng_state(), state)


def test_nothing_is_learned_without_training() -> None:
    found = train_spam(SpamCell(1000, 16, "softmax", 1000), steps=0)
    assert found["accuracy"] < 0.05
    assert found["nats"] == pytest.approx(math.log(1000), abs=0.5)


def test_the_grid_and_its_figure() -> None:
    cases = bench_spam(shrink=100)["cases"]
    assert len(cases) == 2 * 3 * 5
    data = pd.DataFrame([*cases.values()])
    assert sorted({*data[["vocab", "symbols"]].itertuples(index=False, name=None)}) == [
        (10, 10), (100, 10), (100, 100), (1000, 10), (1000, 1000)
    ]  # fmt: skip
    rows = data[data["size"] == 16].assign(share=lambda rows: rows["nats"] / rows["chance"]).sort_values("vocab")
    spam(ax := Figure().add_subplot(), rows)
    assert [line.get_xdata().tolist() for line in ax.lines] == [[10, 100, 1000]] * 6
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--"] * 3
    softmax = rows[(rows["head"] == "softmax") & (rows["symbols"] == rows["vocab"])]
    assert ax.lines[0].get_ydata().tolist() == softmax["share"].tolist()
