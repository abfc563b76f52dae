"""MoS paper, figure 1: the files it writes and the numbers in them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.figures import mos_figure_1
from softmax_bottleneck.spectrum import Spectrum

Result = Mapping[str, Spectrum]


def test_the_numbers_are_beside_the_first_figure(result: Result, tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    mos_figure_1.save(result, tmp_path / "a.png", tmp_path / "b.pdf", tmp_path / "c.svg")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.csv", "a.png", "b.pdf", "c.svg"]
    assert dict(mpl.rcParams) == before
    assert not plt.get_fignums()
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["label", "normalized_singular_value", "percent_at_or_below"]
    assert sorted({row["label"] for row in rows}) == ["mos", "soft, max"]
    for label, spectrum in result.items():
        found = [
            (float(row["normalized_singular_value"]), float(row["percent_at_or_below"]))
            for row in rows
            if row["label"] == label
        ]
        values = sorted(float(value) / float(spectrum.values[0]) for value in spectrum.values)
        zeros = [value for value in values if value <= 2.0**-52]  # told from zero by no method
        expected = [(2.0**-52, 20.0 * len(zeros))] if zeros else []
        expected += [(value, 20.0 * (k + 1)) for k, value in enumerate(values) if value > 2.0**-52]
        assert found == expected  # every digit


def test_the_same_result_gives_the_same_files(result: Result, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        mos_figure_1.save(result, *(tmp_path / name / f"f.{suffix}" for suffix in ("png", "pdf", "svg")))
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_a_curve_for_each_label(result: Result) -> None:
    figure, ax = plt.subplots()
    mos_figure_1.draw(ax, result)
    assert [line.get_label() for line in ax.lines] == list(result)
    plt.close(figure)


def test_a_format_it_does_not_know(result: Result, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a figure is written as"):
        mos_figure_1.save(result, tmp_path / "f.docx")
    assert not list(tmp_path.iterdir())
    assert not plt.get_fignums()
