"""Figures 2, 3, 5, 6, 7 and 8 of the LMS paper, from saved results: the files and the numbers in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.figures import (
    lms_figure_2,
    lms_figure_3,
    lms_figure_5,
    lms_figure_6,
    lms_figure_7,
    lms_figure_8,
    lms_synthetic,
)

PANELS = {2: lms_figure_2, 3: lms_figure_3, 6: lms_figure_6, 7: lms_figure_7, 8: lms_figure_8}
SHOWS = {2: (0.1, "mode_match"), 3: (0.1, "kl"), 6: (0.01, "mode_match"), 7: (0.01, "kl"), 8: (1.0, "mode_match")}


def _cell(model: str, vocab: int, dim: int, seed: int, alpha: float, **measures: Any) -> dict[str, Any]:
    best = {"kl": 0.5, "fitted_kl": 0.6, "mode_match": 0.35, "fitted_mode_match": 0.3, "largest_gap": 1e-9 * (1 + seed)}
    return {
        "model": model, "alpha": alpha, "vocab": vocab, "dim": dim, "seed": seed, "contexts": 9,
        "mode_match": 0.1 * dim + 0.02 * seed, "kl": 1 / dim + 0.1 * seed, "diverged": False,
        "converged": model == "softmax" or dim == 2 or seed > 0,
        "seconds": 1.0, "reachable": best if model == "softmax" else None, **measures,
    }  # fmt: skip


@pytest.fixture
def results() -> list[dict[str, Any]]:
    return [
        _cell(model, vocab, dim, seed, alpha)
        for alpha in (0.01, 0.1, 1.0)
        for model in ("softmax", "lms")
        for vocab in (100, 1000)
        for dim in (5, 2)
        for seed in (0, 1, 2)
    ]


@pytest.fixture
def folder(tmp_path: Path, results: list[dict[str, Any]]) -> Iterator[Path]:
    plt.switch_backend("agg")
    place = tmp_path / "results"
    place.mkdir()
    for alpha in (0.01, 0.1, 1.0):
        cells = [result for result in results if result["alpha"] == alpha]
        (place / f"alpha-{alpha:g}.json").write_text(json.dumps({"alpha": alpha, "cells": cells}), encoding="utf-8")
    (place / lms_figure_5.RESULT).write_text(
        json.dumps(lms_figure_5.measure(vocabs=(10, 30), contexts=50)), encoding="utf-8"
    )
    yield place
    assert not plt.get_fignums()


@pytest.mark.parametrize("number", PANELS)
def test_each_figure_shows_its_cells(number: int, folder: Path, tmp_path: Path) -> None:
    module: ModuleType = PANELS[number]
    alpha, metric = SHOWS[number]
    assert (module.FIGURE.alpha, module.FIGURE.metric) == (alpha, metric)
    result = module.compute(folder)
    module.save(result, tmp_path / "a.png", tmp_path / "b.pdf")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(tmp_path / "a.csv")
    assert set(table["alpha"]) == {alpha}
    row = table[(table["model"] == "softmax") & (table["vocab"] == 1000) & (table["dim"] == 5)].iloc[0]
    assert row["mode_match"] == pytest.approx(0.52)
    assert row["mode_match_std"] == pytest.approx(0.02)
    assert row["kl"] == pytest.approx(0.3)
    assert row["best_kl"] == pytest.approx(0.2)
    assert row["best_mode_match"] == pytest.approx(0.57)
    assert (row["seeds"], row["converged"]) == (3, 3)
    assert row["largest_gap"] == pytest.approx(3e-9)
    lms = table[table["model"] == "lms"]
    assert lms["best_kl"].isna().all()


def test_a_model_has_one_color_in_all_panels(folder: Path) -> None:
    """Whether its markers are hollow or not."""
    summary = lms_figure_2.compute(folder)
    summary.loc[(summary["vocab"] == 100) & (summary["model"] == "softmax"), "converged"] = 0
    figure, axes = plt.subplots(1, 2)
    lms_figure_2.draw(dict(zip((100, 1000), axes, strict=True)), summary)
    colors = [{line.get_label(): line.get_color() for line in ax.lines if line.get_label()[0] != "_"} for ax in axes]
    assert colors[0] == colors[1]
    assert len(set(colors[0].values())) == len(colors[0])
    plt.close(figure)


def test_lines_bands_and_what_is_attainable(folder: Path) -> None:
    figure, axes = plt.subplots(1, 2)
    lms_figure_2.draw(dict(zip((100, 1000), axes, strict=True)), lms_figure_2.compute(folder))
    for ax, vocab in zip(axes, ("100", "1,000"), strict=True):
        lines = {line.get_label(): line for line in ax.lines}
        assert list(lines) == ["softmax", "softmax, vectors of least KL", "lms", "_not converged"]
        hollow = lines["_not converged"]
        assert (hollow.get_xdata().tolist(), hollow.get_markerfacecolor()) == ([5], "white")
        assert hollow.get_ydata()[0] == lines["lms"].get_ydata()[1]
        assert np.asarray(lines["softmax"].get_xdata()).tolist() == [2, 5]
        assert hollow.get_color() == lines["lms"].get_color()
        np.testing.assert_allclose(np.asarray(lines["softmax"].get_ydata(), float), [22, 52])
        np.testing.assert_allclose(np.asarray(lines["softmax, vectors of least KL"].get_ydata(), float), [27, 57])
        assert len(ax.collections) == 2
        assert ax.get_title() == f"M = {vocab}"
    assert axes[1].get_legend() is not None
    plt.close(figure)


def test_no_panel_cuts_the_lines_of_another(folder: Path) -> None:
    """The panels share an axis that starts at zero; the largest value lies in the last."""
    result = lms_figure_3.compute(folder)
    result.loc[result["vocab"] == 1000, ["kl", "best_kl"]] += 7
    figure, axes = plt.subplots(1, 2, sharey=True)
    lms_figure_3.draw(dict(zip((100, 1000), axes, strict=True)), result)
    for ax in axes:
        low, high = ax.get_ylim()
        assert low == 0
        assert high > max(np.asarray(line.get_ydata(), float).max() for line in axes[1].lines) > 7
    plt.close(figure)


def test_what_the_command_writes(results: list[dict[str, Any]], folder: Path, tmp_path: Path) -> None:
    paths = lms_synthetic.save_both([r for r in results if r["alpha"] == 0.1], tmp_path)
    assert paths == [tmp_path / "mode-matching.png", tmp_path / "kl.png"]
    assert {"mode-matching.png", "mode-matching.csv", "kl.png", "kl.csv"} <= {f.name for f in tmp_path.iterdir()}


def test_figure_5_is_of_sorted_probabilities(folder: Path, tmp_path: Path) -> None:
    result = lms_figure_5.compute(folder)
    assert [(curve["vocab"], curve["alpha"]) for curve in result["curves"]] == [
        (vocab, alpha) for vocab in (10, 30) for alpha in (0.01, 0.1, 1.0)
    ]
    for curve in result["curves"]:
        log_probs = np.array(curve["log_probs"])
        assert log_probs.shape == (3, len(curve["ranks"]))
        assert (np.diff(log_probs, axis=1) <= 0).all()
        assert (np.diff(log_probs, axis=0) >= 0).all()
        assert (curve["ranks"][0], curve["ranks"][-1]) == (1, curve["vocab"])
    tops = [curve["log_probs"][1][0] for curve in result["curves"][:3]]
    assert tops == sorted(tops, reverse=True)  # the smaller α, the surer the first token
    lms_figure_5.save(result, tmp_path / "five.svg")
    assert (tmp_path / "five.svg").read_bytes().startswith(b"<?xml")


def test_the_committed_results_redraw_the_figures(tmp_path: Path) -> None:
    plt.switch_backend("agg")
    committed = Path(__file__).parents[2] / "figures" / "results" / "synthetic"
    for module in (*PANELS.values(), lms_figure_5):
        module.save(module.compute(committed), tmp_path / "figure.png")
        assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_no_results(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"holds no cells with alpha 0\.1: write them with"):
        lms_figure_2.compute(tmp_path)
    with pytest.raises(ConfigurationError, match=r"holds no figure-5\.json: write it with"):
        lms_figure_5.compute(tmp_path)
