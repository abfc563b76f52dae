"""The papers' numbers: what is printed where, and what a preset says of it."""

from __future__ import annotations

import re

import pytest

from softmax_bottleneck.results.published import PAPERS, PublishedTable, expectation, rows_of, tables
from softmax_bottleneck.training import PRESETS

EVERY = [table for paper in PAPERS for table in tables(paper)]


@pytest.mark.parametrize("table", EVERY, ids=lambda table: f"{table.source}, {table.corpus}")
def test_a_table_is_whole(table: PublishedTable) -> None:
    """Each row has a cell for each column, names are unique, and numbers are numbers as printed."""
    assert table.caption
    assert len({row.name for row in table.rows}) == len(table.rows)
    for row in table.rows:
        assert len(row.values) == len(table.columns)
        assert any(row.values)
        if table.number != "14":
            assert all(re.fullmatch(r"~?\d+(\.\d+)?M?‡?( ± \d*\.?\d+)?|\[.*\]|", value) for value in row.values)


def test_claims_of_the_papers_hold_for_their_numbers() -> None:
    """A slip of the pen would likely break one: improvements that their texts print."""
    for paper, number, row, column, value in (
        ("mos", "4", "Seq2Seq-MoS", "BLEU-4 recall", "0.123"),
        ("mos", "13", "MoS-15", "WT2/best-1", "6.4"),
        ("lms", "1", "MoS, K = 15, + PLIF, 10⁶ knots, with AWD-LSTM", "test", "56.02"),
        ("parthiban", "ET-ASGD", "MoS, K = 15", "perplexity", "54.91 ± .26"),
        ("mikolov", "4.1", "KN5", "test", "141.2"),
    ):
        assert tables(paper, number)[0].cell(row, column) == value
    for corpus, number in (("ptb", "1"), ("wikitext-2", "2")):  # one model has one number in two tables
        (single,), ablations = tables("mos", number), tables("mos", "5")
        (ablation,) = (table for table in ablations if table.corpus == corpus)
        for split in ("valid", "test"):
            assert single.cell("AWD-LSTM-MoS, not finetuned", split) == ablation.cell("AWD-LSTM-MoS", split)
    (billion,) = tables("mos", "3")
    assert float(billion.cell("Softmax", "test")) - float(billion.cell("MoS", "test")) > 5.6
    (ptb,), (wt2,) = tables("mos", "1"), tables("mos", "2")
    gains = [
        float(table.cell("Krause et al. (2017): AWD-LSTM + dynamic evaluation †", "test"))
        - float(table.cell("AWD-LSTM-MoS + dynamic evaluation †", "test"))
        for table in (ptb, wt2)
    ]
    assert max(gains) == pytest.approx(3.62)  # "by up to 3.6 points"
    (by_K,) = tables("mos", "7")
    perplexity = by_K.numbers("perplexity")
    assert min(perplexity, key=perplexity.__getitem__) == "15"
    for table in (*tables("mos", "4"), *tables("mos", "11")):  # MoS has most of everything
        for column in table.columns[1:]:
            values = list(table.numbers(column).values())
            assert values == sorted(values)


def test_results_are_those_of_presets() -> None:
    """But for n-gram models."""
    known = {f"{preset.family}/{preset.model}" for preset in PRESETS.values()}
    mapped = {row.result for table in EVERY for row in table.rows} - {""}
    assert mapped - known == {"ptb/kn3", "ptb/kn5"}


def test_what_is_said_of_a_preset() -> None:
    assert expectation("ptb/mos-k5") == "test 57.36, rank 8,930 (Yang et al. 2018, table 7)"
    assert "Yang et al. 2018, tables 1 and 5" in expectation("ptb/mos")
    assert expectation("ptb/mos-k1") == "no published number"
    hows = [row.how for _, row in rows_of("ptb/softmax")]
    assert hows == sorted(hows, key=["", "finetuned", "cache", "dynamic", "ET-ASGD"].index)
    assert hows[0] == ""
