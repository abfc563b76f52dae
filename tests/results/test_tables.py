"""Tables as Markdown and LaTeX: alignment, and names that are markup elsewhere."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmax_bottleneck.results.plotting import latex, markdown
from softmax_bottleneck.results.tables import TableText, escape_latex, escape_markdown, is_number, terminal


def test_numbers_stand_right_and_words_left() -> None:
    rows = [["mos", "9", "x"], ["c", "1,000 ± 2", "yy"]]
    header, rule, first, second = markdown(["model", "rank", "why"], rows).split("\n")
    assert header == "| model |      rank | why |"
    assert rule == "| ----- | --------: | --- |"
    assert first == "| mos   |         9 | x   |"
    assert second == "| c     | 1,000 ± 2 | yy  |"


def test_long_text_is_not_aligned() -> None:
    lines = markdown(["a", "b"], [["x", "y " * 200], ["z", "short"]]).split("\n")
    assert len(lines[-1]) < 30


def test_booktabs() -> None:
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
