"""Several sources measured at once: their labels, their table, and their figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

import softmax_bottleneck as sb
from softmax_bottleneck import RankReports
from softmax_bottleneck.errors import ConfigurationError, SourceError

CONTEXTS, VOCAB = 60, 12


def log_probs(dimensions: int) -> NDArray[np.float64]:
    """Return log-probabilities of rank dimensions + 1."""
    generator = np.random.default_rng(dimensions)
    logits = generator.standard_normal((CONTEXTS, dimensions)) @ generator.standard_normal((dimensions, VOCAB))
    return logits - np.logaddexp.reduce(logits, 1)[:, None]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Save matrices of ranks 3, 5 and 7."""
    monkeypatch.chdir(tmp_path)
    names = ("step-20.npy", "step-100.npy", "step-3.npy")
    for name, dimensions in zip(names, (2, 4, 6), strict=True):
        np.save(name, log_probs(dimensions))
    return names


def test_a_list_is_labelled_as_the_command_takes_it(files: tuple[str, ...]) -> None:
    reports = sb.rank([files[0], f"My own={files[1]}", Path(files[2])])
    assert isinstance(reports, RankReports)
    assert [(report.name, report.rank.value) for report in reports] == [("step-20", 3), ("My own", 5), ("step-3", 7)]
    assert reports["My own"] is reports[1]
    assert [report.rank.value for report in reports[1:]] == [5, 7]
    assert reports.to_dict() == {"results": [report.to_dict() for report in reports]}
    assert reports.to_frame()["rank"].tolist() == [3, 5, 7]
    with pytest.raises(ConfigurationError, match="the label 'a' stands for 2 sources; give each its own"):
        sb.rank([f"a={files[0]}", f"a={files[1]}"])


def test_a_dictionary_names_arrays_and_models() -> None:
    layer, hidden = nn.Linear(3, VOCAB, bias=False), np.random.default_rng(0).standard_normal((CONTEXTS, 3))
    reports = sb.rank({"array": log_probs(2), "layer": layer}, hidden=hidden)
    assert [(report.name, report.rank.value) for report in reports] == [("array", 3), ("layer", 4)]
    assert [report.name for report in sb.rank([layer, layer], hidden=hidden)] == ["Linear", "Linear (2)"]


def test_a_list_of_arrays_is_one_matrix_and_other_measurements_take_one_source() -> None:
    whole = log_probs(4)
    assert sb.rank([whole[:20], whole[20:]]).spectrum.shape == (CONTEXTS, VOCAB)
    for several in (["a.npy", "b.npy"], {"a": whole}):
        with pytest.raises(SourceError, match="several sources at once are measured by rank alone"):
            sb.kld(several)


def test_the_table_is_compact_and_its_columns_can_be_chosen(files: tuple[str, ...]) -> None:
    reports = sb.rank(files)
    assert reports.table().header == ["model", "rank", "row-centred rank"]
    assert reports.table().rows == [["step-20", "3", "2"], ["step-100", "5", "4"], ["step-3", "7", "6"]]
    assert repr(reports) == repr(reports.table()) == reports.to_markdown()
    assert "<td style='text-align: left'>7</td>" in reports.table()._repr_html_() == reports._repr_html_()
    latex = reports.to_latex(columns=["contexts", "low"], caption="Ranks")
    assert all(part in latex for part in (r"model & contexts & low \\", r"step-100 & 60 & 5 \\", r"\caption{Ranks}"))
    assert reports.table(columns=["rank", "vocab"], format="csv").splitlines()[1] == "step-20,3,12"
    with pytest.raises(ConfigurationError, match="no result has a column 'rang'; the columns are contexts, vocab"):
        reports.table(columns=["rang"])


def test_results_of_several_kinds_share_the_row_of_a_model() -> None:
    results: list[Any] = [
        measure(log_probs(dimensions)).named(f"d = {dimensions}")
        for measure in (sb.rank, sb.kld)
        for dimensions in (2, 4)
    ]
    header, rows = sb.table(results).header, sb.table(results).rows
    assert header == ["model", "rank", "row-centred rank", "pairwise KL"]
    assert [row[:2] for row in rows] == [["d = 2", "3"], ["d = 4", "5"]]
    assert [float(row[3]) for row in rows] == pytest.approx([float(each) for each in results[2:]], rel=1e-3)
