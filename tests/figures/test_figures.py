"""Figures: what is drawn, against counting and against the results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from softmax_bottleneck.figures import REGISTRY, Figure, SavedResults, find, lms_synthetic, read
from softmax_bottleneck.results.plotting import HEADS, STYLES
from softmax_bottleneck.synthetic import summarize

from .conftest import ERROR, FULL, LOW_RANK, SIZE, TOLERANCE, cell, cells, report, write

FIGURES = [name for name, entry in REGISTRY.items() if isinstance(entry, Figure)]


@pytest.fixture
def ax() -> Iterator[Axes]:
    with mpl.rc_context(STYLES["screen"]):
        yield Canvas().subplots()


@pytest.fixture
def canvases(monkeypatch: pytest.MonkeyPatch) -> list[Canvas]:
    """The canvases that are drawn in place of the files that would be written."""
    kept: list[Canvas] = []
    monkeypatch.setattr("softmax_bottleneck.figures.base.save_figure", lambda figure, path: kept.append(figure))
    return kept


def lines(ax: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """x and y of every line that the legend names."""
    named = {str(line.get_label()): line for line in ax.lines if not str(line.get_label()).startswith("_")}
    return {
        label: (list(map(float, line.get_xdata())), list(map(float, line.get_ydata()))) for label, line in named.items()
    }


def hollow(ax: Axes) -> list[Line2D]:
    """The hollow markers, which stand for something that is not known."""
    return [line for line in ax.lines if line.get_markerfacecolor() == "white" and len(line.get_xydata())]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FIGURES)
def test_it_is_drawn_with_named_axes_in_the_colours_of_its_heads(
    name: str, results: SavedResults, tmp_path: Path, canvases: list[Canvas]
) -> None:
    before = dict(mpl.rcParams)
    figure = find(name)
    data = figure.compute(results)
    paths = figure.save(data, tmp_path / name, formats=("png", "md", "tex", "csv"), style=STYLES["screen"])
    assert [path.name for path in paths] == [f"{name}.{suffix}" for suffix in ("png", "tex", "csv")]
    assert dict(mpl.rcParams) == before
    assert len(pd.read_csv(paths[-1])) == len(data)
    assert figure.caption(data).endswith(".")
    assert f"\\includegraphics{{{name}}}" in paths[1].read_text(encoding="utf-8")
    labels = {look.label: look for look in HEADS.values()}
    panels = [ax for ax in canvases[0].axes if ax.axison]
    assert [ax for ax in canvases[0].axes if ax.axison or ax.get_legend()] == canvases[0].axes  # no place is empty
    for ax in panels:
        assert ax.get_xlabel()
        assert ax.yaxis.label.get_window_extent().height <= ax.get_window_extent().height
        for line in ax.lines:
            if (look := labels.get(str(line.get_label()))) is not None:
                assert to_hex(line.get_color()) == look.color
    assert canvases[0].axes[0].get_ylabel()
    for one, other in pairwise(panels):
        if one.get_window_extent().y0 == other.get_window_extent().y0:
            assert other.xaxis.get_tightbbox().x0 - one.xaxis.get_tightbbox().x1 > 3 * canvases[0].dpi / 72


def test_what_the_axes_say(results: SavedResults, canvases: list[Canvas], tmp_path: Path) -> None:
    def drawn(name: str) -> Canvas:
        figure = find(name)
        figure.save(figure.compute(results), tmp_path / name, formats=("png",), style=STYLES["screen"])
        return canvases[-1]

    assert drawn("effective-ranks").axes[0].get_xlabel() == "share ε of energy left out"
    assert drawn("lms-figure-5").axes[0].get_xlabel() == "position of the token"
    assert drawn("lms-figure-2").legends[0]._ncols == len(drawn("lms-figure-2").legends[0].get_texts()) == 4
    assert drawn("parthiban-figure").legends[0].get_title().get_text() == "all points are published numbers"
    study = drawn("transformer-study-figure")
    assert study.axes[0].get_xlabel().endswith("(better ←)")
    assert len({ax.get_xlim() for ax in study.axes}) == 1
    (centring,) = drawn("row-centring").axes
    assert [text.get_text() for text in centring.texts] == ["tolerance, raw", "tolerance, row-centred"]
    learned = lines(drawn("lms-figure-4").axes[0])["LMS-PLIF"]
    assert learned == ([-1, 0, 1], [-1, 0, 0])  # f(x) − x of f(−1, 0, 1) = −2, 0, 1
    excess = lines(drawn("attainable-kl").axes[0])["α = 0.1"]
    gaps = [np.mean([0.1 / (1 / dim + 0.1 * seed) for seed in range(3)]) for dim in (2, 5)]  # attainable: 0.1 less
    assert excess == ([2, 5], pytest.approx(gaps))


def test_the_curves_of_figure_1(results: SavedResults, ax: Axes) -> None:
    """Each value at or below x, counted; where values are not resolved, the curve begins at the resolution."""
    figure = find("mos-figure-1")
    data = figure.compute(results)
    rows = data[data["model"] == "mos"][::-1]
    assert rows["resolved"].tolist() == [False, *[True] * (len(rows) - 1)]
    for x, percent in rows[["normalized", "percent"]].itertuples(index=False):
        assert percent == pytest.approx(100 * np.count_nonzero(FULL / FULL[0] <= x * (1 + 1e-12)) / SIZE)
    assert rows["normalized"].iloc[1] == pytest.approx(FULL[FULL > ERROR][-1] / FULL[0])
    figure.draw(ax, data)  # type: ignore[attr-defined]
    drawn = lines(ax)
    assert list(drawn) == ["Softmax", "MoC", "MoS", "limit of resolution", "LMS-PLIF"]
    assert drawn["Softmax"] == drawn["MoC"]
    assert min(drawn["MoS"][0]) == pytest.approx(ERROR / FULL[0])
    for x, percent in list(zip(*drawn["MoS"], strict=True)):
        assert percent == pytest.approx(100 * np.count_nonzero(FULL / FULL[0] <= x * (1 + 1e-12)) / SIZE)
    assert [to_hex(line.get_color()) for line in hollow(ax)] == [HEADS["mos"].color]


def test_spectra_end_at_the_resolution(results: SavedResults, ax: Axes) -> None:
    figure = find("spectra")
    data = figure.compute(results)
    figure.draw(ax, data)  # type: ignore[attr-defined]
    drawn = lines(ax)
    assert len(drawn["MoS"][0]) == np.count_nonzero(FULL > ERROR)
    assert drawn["MoS"][1] == pytest.approx((FULL[FULL > ERROR] / FULL[0]).tolist())
    assert len(drawn["Softmax"][0]) == 6
    assert set(data["tolerance"].round(9)) == {round(TOLERANCE / FULL[0], 9), round(TOLERANCE / (FULL[0] + 1), 9)}
    assert data.groupby("model")["resolved"].all().to_dict() == {
        "softmax": False, "moc": False, "mos": False, "lms-plif": True
    }  # fmt: skip
    assert [to_hex(line.get_color()) for line in hollow(ax)] == [HEADS["mos"].color]  # zeros do not raise a doubt
    assert [text.get_text() for text in ax.texts] == ["tolerance", "bound 6"]
    data = find("rank-by-tolerance").compute(results)
    for model, values in (("mos", FULL), ("softmax", LOW_RANK), ("lms-plif", FULL + 1)):
        rows = data[data["model"] == model]
        assert [*rows["rank"]] == [np.count_nonzero(values > factor * TOLERANCE) for factor in rows["factor"]]
    assert (data[data["model"] == "mos"]["factor"] * TOLERANCE >= ERROR).all()


@pytest.mark.parametrize(("number", "alpha", "metric"), [("2", 0.1, "mode_match"), ("7", 0.01, "kl")])
def test_fits_to_dirichlet_distributions(
    number: str, alpha: float, metric: str, results: SavedResults, ax: Axes
) -> None:
    """Means, spreads and what is attainable, against the summary that the command prints."""
    figure = find(f"lms-figure-{number}")
    data = figure.compute(results)
    expected = summarize(cells(alpha)).set_index(["vocab", "dim", "model"])
    scale = 100 if metric == "mode_match" else 1
    groups = data.groupby(["vocab", "dim", "model"])
    for place, row in expected.iterrows():
        fits = groups.get_group(place)
        assert len(fits) == row["seeds"] == 3
        assert fits[metric].mean() == pytest.approx(scale * row[metric])
        assert fits[metric].std() == pytest.approx(scale * row[f"{metric}_std"])
        assert fits["attainable"].isna().all() == (place[2] == "lms")  # type: ignore[index]
        if place[2] == "softmax":  # type: ignore[index]
            assert fits["attainable"].mean() == pytest.approx(scale * row[f"best_{metric}"])
    figure.draw(ax, data[data["vocab"] == 1000])  # type: ignore[attr-defined]
    drawn = lines(ax)
    assert list(drawn) == ["Softmax", "LMS", "Softmax, best for its W", "not all fits converged"]
    assert drawn["LMS"] == ([2, 5], pytest.approx([scale * expected.loc[(1000, dim, "lms"), metric] for dim in (2, 5)]))
    assert [list(line.get_xdata()) for line in hollow(ax)] == [[5]]  # type: ignore[arg-type]


def test_diverged_fits_have_no_part_in_the_means_and_a_hollow_marker(ax: Axes) -> None:
    some = [*cells(0.1), cell("mos", 100, 2, 0, 0.1, kl=1e9, diverged=True), cell("mos", 100, 2, 1, 0.1)]
    data = lms_synthetic.tidy(some, "kl")
    assert data[data["model"] == "mos"]["kl"].tolist() == pytest.approx([math.nan, 0.6], nan_ok=True)
    lms_synthetic.draw_against_dim(ax, data[data["vocab"] == 100], "kl")
    assert [2, pytest.approx(0.6)] in [line.get_xydata()[0].tolist() for line in hollow(ax)]  # type: ignore[index]


def test_what_the_synthetic_command_writes(tmp_path: Path, canvases: list[Canvas]) -> None:
    """Files of one concentration do not overwrite those of another, and say which it is."""
    paths = lms_synthetic.save_figures([*cells(0.1), *cells(1.0)], tmp_path)
    assert {path.name for path in paths} == {
        f"{name}-alpha-{alpha}.{suffix}"
        for name in ("mode-matching", "kl")
        for alpha in ("0.1", "1")
        for suffix in ("png", "pdf", "svg", "csv")
    }
    table = pd.read_csv(tmp_path / "kl-alpha-1.csv")
    assert (set(table["alpha"]), "kl" in table, "mode_match" in table) == ({1.0}, True, False)
    one = [each for each in cells(0.1) if (each["dim"], each["vocab"], each["model"]) == (2, 100, "softmax")]
    assert {path.suffix for path in lms_synthetic.save_figures(one, tmp_path)} == {".csv"}  # nothing to compare


def test_no_panel_cuts_the_lines_of_another(results: SavedResults, tmp_path: Path, canvases: list[Canvas]) -> None:
    """The panels share an axis that starts at zero; the largest value lies in the last."""
    data = find("lms-figure-3").compute(results)
    data.loc[data["vocab"] == 1000, ["kl", "attainable"]] += 7
    find("lms-figure-3").save(data, tmp_path / "x", formats=("png",), style=STYLES["screen"])
    for ax in canvases[0].axes:
        low, high = ax.get_ylim()
        assert low == 0
        assert high > data["kl"].max() > 7
    assert [ax.get_title() for ax in canvases[0].axes] == ["M = 100, N = 9", "M = 1,000, N = 9"]
    assert canvases[0].legends[0].get_title().get_text() == "Dirichlet α = 0.1, N contexts, 3 seeds"
    assert [bool(ax.get_ylabel()) for ax in canvases[0].axes] == [True, False]


@pytest.mark.parametrize("style", ["screen", "icml"])
def test_nothing_lies_outside_the_figure(
    style: str, results: SavedResults, tmp_path: Path, canvases: list[Canvas]
) -> None:
    """Legend and axis labels of the widest figures, in the narrowest and the widest venue."""
    for name in ("lms-figure-2", "parthiban-figure", "mos-figure-1"):
        figure = find(name)
        with mpl.rc_context(STYLES[style]):
            figure.save(figure.compute(results), tmp_path / "x", formats=("png",), style=STYLES[style])
            canvas = canvases.pop()
            canvas.draw_without_rendering()
            box = canvas.get_tightbbox()
            width, height = canvas.get_size_inches()
            assert width == STYLES[style]["figure.figsize"][0]
            assert min(box.x0, box.y0) > -0.02, name
            assert max(box.x1 - width, box.y1 - height) < 0.02, name


def test_heads_of_the_study_are_compared_seed_by_seed(results: SavedResults, ax: Axes) -> None:
    figure = find("transformer-study-figure")
    assert isinstance(figure, Figure)
    data = figure.compute(results)
    changes = {("lms-plif", "parameters"): -0.25, ("lms-plif", "time"): 0.25, ("softmax-untied", "parameters"): 0.0}
    assert data.set_index(["head", "regime", "seed"])["difference"].to_dict() == {
        (*place, seed): seed * change for place, change in changes.items() for seed in (1, 2)
    }
    figure.draw(ax, data)
    means = {round(float(line.get_xdata()[0]), 6) for line in ax.lines if len(line.get_xdata()) == 1}
    assert {-0.375, 0.375, 0.0} <= means


def test_heads_on_a_frozen_body_are_compared_at_equal_steps_and_time(results: SavedResults) -> None:
    figure = find("frozen-body-figure").compute(results).set_index(["head", "regime", "seed"])["difference"]
    equal = {("mos-4", "parameters", 0): -0.1, ("mos-4", "parameters", 1): -0.1}
    timed = {("mos-4", "time", 0): 0.3, ("mos-4", "time", 1): 0.3}  # four times as slow: after 4 of 16 steps
    faster = {("lms-plif", which, seed): 0.1 for which in ("parameters", "time") for seed in (0, 1)}
    assert figure.to_dict() == pytest.approx(equal | timed | faster)
    table = find("frozen-body").compute(results).set_index(["row", "column"])["text"]
    assert table["MoS, K = 4", "learning rate"] == "1e-01"
    assert table["MoS, K = 4", "equal steps"] == f"{(math.exp(1.9) + math.exp(1.8)) / 2:.3f} ± 0.450"
    assert table["MoS, K = 4", "rank"] == "9 to 12"
    assert table["Softmax", "steps, equal time"] == "16"


def test_ranks_of_kept_checkpoints_stand_beside_the_perplexity(folder: Path, ax: Axes) -> None:
    for epoch, value in ((2, 30), (1, 20), (10, 39)):
        whole = report("mos")["report"]
        rank = {**whole["rank"], "value": value, "low": value - 5, "high": value + 1}
        content = {**whole, "rank": rank, "rank_centered": rank}
        write(folder / "demo" / f"mos.epoch-{epoch}.json", content)
    of_sketch = {**whole, "effective_rank": {"1e-3": None}}
    write(folder / "wt2-fast" / "mos.epoch-1.json", of_sketch)  # fewer epochs: not drawn
    other = report("mos", seed=1)
    other["history"] = [{**row, "valid_perplexity": 7.0} for row in other["history"]]
    write(folder / "demo" / "mos-1.json", other)
    results = read(folder)
    assert [*results.numbers("demo/mos", "rank")["value"]] == [6, 6]  # a checkpoint is not the run
    figure = find("training-course")
    data = figure.compute(results)
    assert figure.missing(data) == []
    assert set(data["panel"]) == {"perplexity", "rank"}
    assert set(data["family"]) == {"demo"}
    ranks = data[data["panel"] == "rank"]
    assert not ranks.duplicated(["model", "epoch"]).any()
    assert ranks.loc[ranks["model"] == "softmax", ["epoch", "value"]].to_numpy().tolist() == [[2, 30]]  # at the end
    ranks = ranks[ranks["model"] == "mos"]
    assert ranks[["epoch", "value", "low"]].to_numpy().tolist() == [[1, 20, 15], [2, 30, 25], [10, 39, 34]]
    figure.draw(ax, ranks)  # type: ignore[attr-defined]
    assert lines(ax)["MoS"] == ([1, 2, 10], [20, 30, 39])
    assert set(data[data["panel"] == "perplexity"]["drawn"]) == {0.0}  # all models have the same perplexities
    cells = find("training-course-table").compute(results)
    ranks = cells[cells["column"] == "row-centred rank"]
    assert dict(zip(ranks["row"], ranks["value"], strict=True)) == {
        **{f"MoS (demo), epoch {epoch}": value for epoch, value in ((1, 20), (2, 30), (10, 39))},
        "MoS (wt2-fast), epoch 1": whole["rank_centered"]["value"],
    }
    assert "unknown" in [*cells["text"]]
    perplexities = cells[cells["column"] == "validation perplexity"]
    history = {row["epoch"]: row["valid_perplexity"] for row in report("mos")["history"]}
    assert [*perplexities["value"].fillna(0)] == [*(history.get(epoch, 0) for epoch in (1, 2, 10)), 0]
