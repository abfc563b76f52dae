"""Looks of heads, styles, rows of panels, and figures that are the same bytes each time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from softmax_bottleneck import heads
from softmax_bottleneck.results.plotting import HEADS, STYLES, find_style, head_of, looks, save_figure
from softmax_bottleneck.results.plotting.layout import Panel, lay_out

FORMATS = ["png", "pdf", "svg"]
SIGNATURES = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
SCRIPT = """
import sys
from pathlib import Path
from matplotlib.figure import Figure
from softmax_bottleneck.results.plotting import save_figure
figure = Figure()
figure.subplots().plot([1, 3, 2], label="x")
for name in sys.argv[1:]:
    save_figure(figure, Path(name))
"""


def figure_of(ax: Axes) -> Figure:
    ax.plot([1, 3, 2], label="x")
    ax.legend()
    assert isinstance(ax.figure, Figure)
    return ax.figure


WIDTHS = {"iclr": 5.5, "neurips": 5.5, "icml": 3.25, "icml-wide": 6.75}
"""Inches of a line, as the venues' own style files set it."""


@pytest.mark.parametrize("name", STYLES)
def test_styles_are_parameters_of_matplotlib(name: str) -> None:
    before = dict(mpl.rcParams)
    with mpl.rc_context(find_style(name)):
        assert mpl.rcParams["figure.figsize"][0] == WIDTHS.get(name, 7.0)
        assert mpl.rcParams["pdf.fonttype"] == 42
    assert dict(mpl.rcParams) == before


def test_a_pdf_has_true_type_fonts_and_no_bitmaps(ax: Axes, tmp_path: Path) -> None:
    figure = figure_of(ax)
    with mpl.rc_context({**find_style("iclr"), "pdf.compression": 0}):
        save_figure(figure, tmp_path / "f.pdf")
    content = (tmp_path / "f.pdf").read_bytes()
    assert b"/TrueType" in content or b"/CIDFontType2" in content
    assert b"/Type3" not in content
    assert b"/Subtype /Image" not in content


def test_two_processes_draw_the_same_bytes(tmp_path: Path) -> None:
    """Also at another time: what is drawn is not dated."""
    for folder in ("1", "2"):
        (tmp_path / folder).mkdir()
    names = [f"f.{suffix}" for suffix in FORMATS]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "MPLBACKEND": "agg"}
    program = [sys.executable, "-c", SCRIPT, *(str(tmp_path / "1" / name) for name in names)]
    subprocess.run(program, check=True, env=environment)
    figure = Figure()
    figure.subplots().plot([1, 3, 2], label="x")
    for name in names:
        save_figure(figure, tmp_path / "2" / name)
        data = (tmp_path / "1" / name).read_bytes()
        assert data.startswith(SIGNATURES[name.partition(".")[2]])
        assert data == (tmp_path / "2" / name).read_bytes()


@pytest.mark.parametrize(("least_width", "first_row"), [(2.0, 3), (2.4, 2), (4.0, 1)])
def test_a_row_has_as_many_panels_as_fit(least_width: float, first_row: int) -> None:
    with mpl.rc_context({"figure.figsize": (7.0, 4.0), "figure.constrained_layout.use": True}):
        axes = lay_out(Figure(), [Panel(lambda ax: ax.plot([0, 1]))] * 3, least_width=least_width)
    tops = [ax.get_position().y1 for ax in axes]
    assert sum(top > tops[0] - 0.1 for top in tops) == first_row


def test_every_registered_head_has_a_look_of_its_own() -> None:
    assert HEADS.keys() == heads.REGISTRY.keys()
    assert len({look.color for look in HEADS.values()}) == len({look.marker for look in HEADS.values()}) == len(HEADS)
    softmax, moc = HEADS["softmax"], HEADS["moc"]  # both are seen where they coincide
    assert (softmax.layer < moc.layer, softmax.width > moc.width) == (True, True)
    assert softmax.dashes[1] == 0 < moc.dashes[1]


def test_colours_are_seen_on_white() -> None:
    """A contrast of at least 2 by the formula of WCAG 2, and 3 for the four most shown."""
    for name, look in HEADS.items():
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(look.color)]
        luminance = sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
        assert 1.05 / (luminance + 0.05) > (3 if name in ("softmax", "mos", "sigsoftmax", "lms-plif") else 2), name


@pytest.mark.parametrize(
    ("name", "head"),
    [("mos", "mos"), ("mos-k15", "mos"), ("mos-plif", "mos-plif"), ("demo/runs/lms-plif/", "lms-plif"),
     ("lms", "lms-net"), ("softmax-mos-settings", "softmax"), ("moses", None), ("", None)],
)  # fmt: skip
def test_names_of_runs_and_presets_tell_their_head(name: str, head: str | None) -> None:
    assert head_of(name) == head


def test_names_that_are_drawn_together_are_told_apart() -> None:
    names = ["gpt2", "a/mos", "mos", "mos-k5", "other", "softmax"]
    found = looks(names)
    assert list(found) == ["softmax", "a/mos", "mos", "mos-k5", "gpt2", "other"]
    assert len({(look.color, look.dashes) for look in found.values()}) == len(names)
    assert found["mos"].label == "MoS"
    assert found["a/mos"].label == "a/mos"
    assert {found[name].color for name in ("mos", "a/mos", "mos-k5")} == {HEADS["mos"].color}
    assert found["gpt2"].color != found["other"].color
    assert not {found["gpt2"].color, found["other"].color} & {HEADS["mos"].color, HEADS["softmax"].color}
