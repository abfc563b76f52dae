"""Results as lines and tables, and tables as Markdown and LaTeX: alignment, and names that are markup elsewhere."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from softmax_bottleneck import BottleneckError, Result, __version__, frame, table
from softmax_bottleneck.results.base import ALL_NUMBERS, UNSAVED
from softmax_bottleneck.results.plotting import latex, markdown
from softmax_bottleneck.results.quantity import ANSWER, DETAIL, TABLE, Quantity
from softmax_bottleneck.results.tables import TableText, escape_latex, escape_markdown, is_number, terminal


def test_markdown_and_booktabs() -> None:
    """Numbers stand right and words left; long text is not aligned."""
    rows = [["mos", "9", "x"], ["c", "1,000 ± 2", "yy"]]
    assert markdown(["model", "rank", "why"], rows).split("\n") == [
        "| model |      rank | why |",
        "| ----- | --------: | --- |",
        "| mos   |         9 | x   |",
        "| c     | 1,000 ± 2 | yy  |",
    ]
    assert len(markdown(["a", "b"], [["x", "y " * 200], ["z", "short"]]).split("\n")[-1]) < 30
    text = latex(["model", "rank"], [["a_b", "7"]], caption="100 % & more", label="tab:x")
    assert [line.strip() for line in text.splitlines()] == [
        r"\begin{table}", r"\centering", r"\caption{100 \% \& more}", r"\label{tab:x}", r"\begin{tabular}{@{}lr@{}}",
        r"\toprule", r"model & rank \\", r"\midrule", r"a\_b & 7 \\", r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip


@given(st.text(min_size=1).filter(lambda text: "\n" not in text))
def test_markdown_is_undone_by_a_reader(text: str) -> None:
    """A backslash before punctuation and an entity stand for the character itself."""
    entities = {"lt": "<", "gt": ">", "amp": "&"}
    shown = re.sub(r"\\(.)|&(lt|gt|amp);", lambda found: found[1] or entities[found[2]], escape_markdown(text))
    assert shown == text


@given(st.text(alphabet="ab\\{}$&#%_^~<>|", max_size=20))
def test_latex_has_no_bare_special_character(text: str) -> None:
    left = re.sub(r"\\(?:text[a-z]+\{\}|[{}$&#%_])", "", escape_latex(text))
    assert not set(left) & set("\\{}$&#%_^~<>|")
    assert escape_latex("σ₁ 10⁻⁴⁵ Σ η λ ≈ ∞").isascii()


def test_what_a_number_is() -> None:
    numbers = ["9,981", "57.08 ± .09", "~55", "", "–", "none", "22M", "1,421 to 10,000 (9,661)", "84 %", "102, 101"]
    assert all(map(is_number, numbers))
    assert not any(map(is_number, ["MoS", "valid 3", "rank 7"]))


def test_a_table_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text goes nowhere else, and more columns than fit stand below each other."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    names = [f"q{number}" for number in range(20)]
    assert terminal(["model", "d"], [["a", "7"]]).split()[:2] == ["model", "d"]
    wide = TableText("", ["model", *names], [["a"] * 21])._repr_html_()
    assert wide.startswith("<table><tr><th>model</th><th>a</th></tr><tr><th>q0</th><td")
    assert TableText("", ["model", "q0"], [["a", "b"]])._repr_html_().startswith("<table><tr><th>model</th><th>q0</th>")


@dataclass(frozen=True, repr=False)
class Length(Result, kind="length"):
    metres: float
    sure: bool = True
    source: Mapping[str, Any] = field(default_factory=lambda: {"path": "runs/a"})
    history: tuple[int, ...] = (1, 2)
    tape: NDArray[np.float64] = field(default_factory=lambda: np.ones(2), metadata={"key": "inches"})
    beside: object = field(default=None, metadata=UNSAVED)

    def quantities(self) -> Iterator[Quantity]:
        yield Quantity("metres", self.metres, "metres", ANSWER | TABLE)
        yield Quantity("sure", self.sure, "sure", TABLE)
        yield Quantity("note", None, "note", TABLE)
        yield Quantity("between", Between(0.5, 1.0, 2.0), "between", TABLE)
        yield Quantity("eps.value", 0.5, "roundoff", DETAIL)
        yield Quantity("", None, "again", text=f"{self.metres} m")


class Between(NamedTuple):
    low: float
    value: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return self._asdict()

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


def test_every_view_is_made_of_the_quantities() -> None:
    long = Length(1234.5)
    assert long.rows() == [("metres", "1234"), ("again", "1234.5 m"), ALL_NUMBERS]
    assert long.rows(details=True) == [("metres", "1234"), ("roundoff", "0.5"), ("again", "1234.5 m")]
    assert str(long).splitlines()[0] == "     metres  1234"
    assert repr(Length(12345.678).named("a & b")) == "Length('a & b': metres 1.235e+04; again 12345.678 m)"
    assert long.to_dict() == {
        "kind": "length", "metres": 1234.5, "sure": True, "source": {"path": "runs/a"}, "history": [1, 2],
        "inches": [1.0, 1.0], "note": None, "between": {"low": 0.5, "value": 1.0, "high": 2.0}, "eps": {"value": 0.5},
        "version": __version__,
    }  # fmt: skip


def test_a_result_is_read_back() -> None:
    long = Length(1234.5, sure=False, history=(3,), tape=np.arange(3.0))
    again = Length.from_dict(json.loads(json.dumps(long.to_dict())))
    assert again.to_dict() == long.to_dict()
    assert (again.history, again.tape.dtype) == ((3,), np.float64)
    for wrong, why in (
        ({"metres": "x"}, "metres: it must be a valid number"),
        ({"metres": 1.0, "history": [0.5]}, "history"),
    ):
        with pytest.raises(ValueError, match=why):
            Length.from_dict(wrong)
    with pytest.raises(ValueError, match="missing 1 required positional argument: 'metres'"):
        Length.from_dict({})


def test_a_frame_has_a_row_for_each_result_and_its_name_as_index() -> None:
    found = frame([Length(1.0), Length(2.0, sure=False).named("b")])
    assert found.index.tolist() == ["runs/a", "b"]
    assert found.index.name == "name"
    assert found["metres"].tolist() == [1.0, 2.0]
    assert [*found.columns] == ["metres", "sure", "note", "between", "between_low", "between_high"]
    full = frame([Length(1.0)], full=True)
    assert full.loc["runs/a", "eps.value"] == 0.5
    assert full.loc["runs/a", "source.path"] == "runs/a"


def test_tables_for_people_escape_names_and_leave_out_empty_columns() -> None:
    results = [Length(1234.5678), Length(2.0, sure=False).named("50 % | _x_")]
    header, _, _, last = (
        [cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")] for line in table(results).split("\n")
    )
    assert header == ["model", "metres", "sure", "between"]
    assert last == ["50 % / \\_x\\_", "2", "no", "0.5 to 2.0"]
    tex = table(results, format="latex")
    assert r"50 \% \textbar{} \_x\_ & 2 & no & 0.5 to 2.0 \\" in tex
    assert r"\caption" not in tex
    with pytest.raises(BottleneckError, match="unknown format 'html'; a table is one of markdown, latex, csv"):
        table(results, format="html")
    assert r"\caption{Lengths}" in results[0].to_latex(caption="Lengths")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), st.floats(1e-9, 1e9))
def test_csv_keeps_every_digit_and_every_name(name: str, metres: float) -> None:
    text = table([Length(metres).named(name), Length(2.0)], format="csv")
    first, second = csv.DictReader(io.StringIO(text, newline=""))
    assert (first["name"], float(first["metres"])) == (name, metres)
    assert second["name"] == "runs/a"
