"""Results as one line, one row and several formats of a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmax_bottleneck import BottleneckError, Result, frame, table


@dataclass(frozen=True, repr=False)
class Length(Result):
    metres: float
    sure: bool = True
    source: Mapping[str, Any] = field(default_factory=lambda: {"path": "runs/a"})

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": dict(self.source),
            "metres": self.metres,
            "sure": self.sure,
            "note": None,
            "history": [1, 2],
            "eps": {"value": 0.5},
            "version": "9",
        }

    def rows(self) -> list[tuple[str, str]]:
        return [("length", f"{self.metres} m")]


def test_one_line() -> None:
    assert repr(Length(12345.678).named("a & b")) == "Length('a & b', metres=1.235e+04, sure=yes)"


def test_a_frame_has_a_row_for_each_result_and_its_name_as_index() -> None:
    found = frame([Length(1.0), Length(2.0, sure=False).named("b")])
    assert found.index.tolist() == ["runs/a", "b"]
    assert found.index.name == "name"
    assert found["metres"].tolist() == [1.0, 2.0]
    assert [*found.columns] == ["metres", "sure", "note"]
    full = frame([Length(1.0)], full=True)
    assert full.loc["runs/a", "eps.value"] == 0.5
    assert full.loc["runs/a", "source.path"] == "runs/a"


def test_tables_for_people_escape_names_and_leave_out_empty_columns() -> None:
    results = [Length(1234.5678), Length(2.0, sure=False).named("50 % | _x_")]
    header, _, _, last = (
        [cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")] for line in table(results).split("\n")
    )
    assert header == ["model", "metres", "sure"]
    assert last == ["50 % / \\_x\\_", "2", "no"]
    tex = table(results, format="latex")
    assert r"50 \% \textbar{} \_x\_ & 2 & no \\" in tex
    assert r"\caption" not in tex
    assert r"\caption{Lengths}" in results[0].to_latex(caption="Lengths")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), st.floats(1e-9, 1e9))
def test_csv_keeps_every_digit_and_every_name(name: str, metres: float) -> None:
    text = table([Length(metres).named(name), Length(2.0)], format="csv")
    first, second = csv.DictReader(io.StringIO(text, newline=""))
    assert (first["name"], float(first["metres"])) == (name, metres)
    assert second["name"] == "runs/a"


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(BottleneckError, match="unknown format 'html'; a table is one of markdown, latex, csv"):
        table([Length(1.0)], format="html")
