"""Tables: published numbers as printed, measured ones beside them, and dashes where there is no number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from softmax_bottleneck.figures import SavedResults, find
from softmax_bottleneck.figures.lms import initial_slopes
from softmax_bottleneck.figures.published_tables import PUBLISHED
from softmax_bottleneck.results.published import tables


def shown(name: str, results: SavedResults) -> dict[tuple[str, str], str]:
    """Every cell of a table as it is laid out, by row and column."""
    entry = find(name)
    header, rows = entry.rows(entry.compute(results))  # type: ignore[attr-defined]
    assert len(set(header)) == len(header)
    assert len({row[0] for row in rows}) == len(rows)
    return {(row[0], column): text for row in rows for column, text in zip(header[1:], row[1:], strict=True)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_number_is_there_once(name: str, results: SavedResults) -> None:
    data = find(name).compute(results)
    found = data[(data["kind"] == "published") & (data["text"] != "")]
    printed = [
        value
        for number in PUBLISHED[name]["number"].split(" and ")
        for table in tables(PUBLISHED[name]["paper"], number)
        for row in table.rows
        for value in row.values
        if value
    ]
    assert sorted(found["text"].str.replace(",", "")) == sorted(printed)
    assert found["source"].str.contains("table|ET-ASGD").all()


def test_measured_stands_beside_published(results: SavedResults) -> None:
    table = shown("mos-table-1", results)
    row = "AWD-LSTM-MoS, not finetuned"
    assert table[f"{row}, published", "test"] == "55.97"
    assert table[f"{row}, measured", "test"] == "57.00 ± 1.00"
    assert table[f"{row}, measured", "valid"] == "62.00 ± 1.00"
    row = "AWD-LSTM-MoS + dynamic evaluation †"
    assert table[f"{row}, measured", "test"] == "48.00"
    assert table[f"{row}, measured", "valid"] == "–"
    assert not any(name == "Merity et al. (2017): AWD-LSTM, measured" for name, _ in table)
    assert "" not in table.values()


def test_what_is_missing_is_listed(results: SavedResults) -> None:
    for name, missing in (
        ("mos-table-6", ["nothing measured of ptb/softmax, ptb/moc"]),
        ("mos-table-7", ["nothing measured of ptb/mos-k3, ptb/mos-k5, ptb/mos-k10, ptb/mos-k15, ptb/mos-k20"]),
        ("mos-table-13", []),
        ("mos-table-14", []),
        ("ptb-small", ["bottleneck demo --family ptb-small"]),
        ("lms-table-2", []),
    ):
        entry = find(name)
        assert entry.missing(entry.compute(results)) == missing


def test_settings_stand_beside_those_of_the_presets(results: SavedResults) -> None:
    """The authors' code and table 8 exchange PTB's and WikiText-2's columns in two rows; all else agrees, rounded."""
    table = shown("mos-table-8", results)
    different = {name for name, heading in table if heading == "PTB, here" and _differs(table, name, "PTB")}
    assert different == {"Embedding V-dropout", "Hidden state V-dropout"}
    for here, published in (("PTB", "WT2"), ("WT2", "PTB")):
        for name in different:
            assert float(table[name, f"{here}, here"]) == float(table[name, f"{published}, published"])
    assert shown("mos-table-9", results)["decay", "PTB, here"] == "0.075"
    billion = shown("mos-table-10", results)
    assert not any(_differs(billion, name, model) for name, _ in billion for model in ("Softmax", "MoS-7"))


def _differs(table: dict[tuple[str, str], str], name: str, column: str) -> bool:
    published, here = table[name, f"{column}, published"], table[name, f"{column}, here"]
    if published.startswith("["):
        return published != here
    return abs(float(published) - float(here)) > 0.011


def test_slopes_before_any_training_are_those_of_the_draw(results: SavedResults) -> None:
    """Against statistics of a million random slopes, and of a hundred samples of 100,000 for the extremes."""
    draws = np.logaddexp(0, math.log(math.e - 1) + np.random.default_rng(0).standard_normal((100, 100_000)))
    expected = initial_slopes()
    assert draws.mean() == pytest.approx(expected["mean"], abs=1e-3)
    assert draws.std() == pytest.approx(expected["std"], abs=1e-3)
    assert np.median(draws.min(1)) == pytest.approx(expected["min"], rel=0.05)
    assert np.median(draws.max(1)) == pytest.approx(expected["max"], rel=0.02)
    assert draws.max(1).min() < 5.16 < draws.max(1).max()  # the published largest slope is one of these
    table = shown("lms-table-2", results)
    assert table["expected before any training", "mean"] == "1.11"
    assert table["LMS-PLIF, demo, seed 0, measured", "max"] == "3.50"
