"""The figure of spectra: its files, its marks, and names that tell sources apart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from numpy.typing import ArrayLike

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.results.base import short_names
from softmax_bottleneck.results.plotting.spectra import draw_cdf, draw_scree, save_spectra
from softmax_bottleneck.spectrum import Limits, Spectrum

Make = Callable[[ArrayLike], Spectrum]
VALUES = np.geomspace(10, 1e-4, 30)


@given(st.lists(st.floats(0, 1e3, allow_subnormal=False), min_size=1, max_size=20))
def test_cdf_counts(spectrum: Make, values: list[float]) -> None:
    ordered = sorted(values, reverse=True)
    rows = spectrum(ordered).curves()
    normalized, percent = rows.loc[rows["part"] == "raw", ["normalized", "percent"]].to_numpy()[::-1].T
    largest = ordered[0] or 1.0
    known = [value / largest for value in ordered[::-1] if value > 2.0**-52 * largest]
    assert normalized.tolist() == [2.0**-52] * (len(known) < len(values)) + known
    assert (np.diff(percent) > 0).all()
    assert percent[-1] == pytest.approx(100)
    for x in normalized:
        last = np.flatnonzero(normalized == x)[-1]
        at_or_below = sum(value / largest <= x for value in values)
        assert percent[last] == pytest.approx(100 * at_or_below / len(values))


def test_files_and_their_numbers(spectrum: Make, tmp_path: Path) -> None:
    curves = pd.concat([spectrum(VALUES).curves("soft, max"), spectrum(VALUES / 2).curves("mos")])
    save_spectra(curves, tmp_path / "a.png", tmp_path / "b.pdf", part="raw")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.png", "b.pdf"]
    table = pd.read_csv(tmp_path / "a.csv")
    assert list(table["model"].unique()) == ["soft, max", "mos"]
    rows = table[table["model"] == "mos"]
    assert rows["sigma"].tolist() == pytest.approx((VALUES / 2).tolist(), rel=1e-15)
    assert rows["normalized"].tolist() == pytest.approx((VALUES / 10).tolist(), rel=1e-15)
    assert rows["percent"].tolist() == pytest.approx([100 * (30 - i) / 30 for i in range(30)])
    with pytest.raises(ConfigurationError, match=r"a figure is written as png, pdf, svg, not 'a\.docx'"):
        save_spectra(curves, tmp_path / "a.docx")


def test_the_zero_of_row_centring_is_no_unknown_value() -> None:
    values = np.array([4.0, 2.0, 1.0])
    found = Spectrum(values, np.array([2.0, 1.0, 0.0]), (5, 3), "gram", 0.0, error=1e-7, centered_error=1e-7)
    rows = found.curves()
    centered = rows[rows["part"] == "row-centred"]
    assert centered["sigma"].tolist() == [2.0, 1.0]
    assert centered["percent"].tolist() == [100.0, 50.0]
    assert rows["resolved"].all()


def test_tolerances_that_differ_have_a_line_each(spectrum: Make, ax: Axes) -> None:
    limits = {"mos": Limits(tolerance=1e-2, bound=7), "softmax": Limits(tolerance=1e-5, bound=9)}
    curves = pd.concat([spectrum(VALUES).curves(name, limit) for name, limit in limits.items()])
    draw_scree(ax, curves[curves["part"] == "raw"])
    curve = {to_hex(line.get_color()) for line in ax.lines if str(line.get_label()) in ("MoS", "Softmax")}
    dotted = [line for line in ax.lines if line.get_linestyle() == ":"]
    assert {to_hex(line.get_color()) for line in dotted} == curve
    assert sorted(float(np.asarray(line.get_ydata())[0]) for line in dotted) == pytest.approx([1e-6, 1e-3])
    assert not ax.patches
    assert [text.get_text() for text in ax.texts] == ["tolerances", "bound 7", "bound 9"]


def test_one_tolerance_has_its_band(spectrum: Make, ax: Axes) -> None:
    draw_scree(ax, spectrum(VALUES).curves("mos", Limits(tolerance=1e-2)).query("part == 'raw'"))
    (band,) = ax.patches
    assert sorted(band.get_extents().transformed(ax.transData.inverted()).intervaly) == pytest.approx([1e-4, 1e-2])
    assert [text.get_text() for text in ax.texts] == ["tolerance"]


@pytest.mark.parametrize("draw", [draw_cdf, draw_scree])
def test_one_value_is_a_dot(spectrum: Make, ax: Axes, draw: Callable[..., None]) -> None:
    draw(ax, spectrum([3.0]).curves("mos").query("part == 'raw'"))
    assert ax.lines[-1].get_marker() not in ("", "None", None)


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["demo/runs/mos/"], ["mos"]),
        (["s.npz", "demo/runs/mos"], ["s", "mos"]),
        (["a/mos", "b/mos", "moc"], ["a/mos", "b/mos", "moc"]),
        (["mos", "a/mos"], ["mos", "a/mos"]),
        (["x/a/mos", "y/a/mos"], ["x/a/mos", "y/a/mos"]),
        (["kn5:ptb", "openai-community/gpt2"], ["kn5:ptb", "gpt2"]),
    ],
)
def test_names_are_as_short_as_tells_them_apart(paths: list[str], names: list[str]) -> None:
    assert short_names(paths) == names


def test_a_first_figure_leaves_the_backends_settings(tmp_path: Path) -> None:
    """Loading the backend of notebooks makes pyplot interactive; the style of our figure must not end that."""
    (tmp_path / "inline.py").write_text(
        "import matplotlib\nfrom matplotlib.backends.backend_agg import *\nmatplotlib.interactive(True)\n"
    )
    program = (
        "import matplotlib, numpy as np, softmax_bottleneck as sb\n"
        "sb.singular_values(np.eye(4)).plot()\n"
        "assert matplotlib.is_interactive()"
    )
    environment = {**os.environ, "MPLBACKEND": "module://inline", "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
