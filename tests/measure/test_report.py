"""The rank report as JSON, table and text, and the tolerances of its two spectra against each other."""

from __future__ import annotations

import json
import operator
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from softmax_bottleneck import RankReport, __version__, rank
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.measure import computing
from softmax_bottleneck.measure.report import report_of
from softmax_bottleneck.spectrum import counts_by_rule, matrix_spectrum, numerical_rank, precision, tolerance
from softmax_bottleneck.spectrum.effective_ranks import effective_rank


def report(
    matrix: NDArray[np.float64], *, eps: str | float = "float32", assumed: bool = False, **changes: Any
) -> RankReport:
    spectrum = matrix_spectrum(matrix)
    raw, centered = (
        numerical_rank(values, shape=spectrum.shape, eps=eps) for values in (spectrum.values, spectrum.centered)
    )
    values: dict[str, Any] = {
        "source": {"path": "runs/a", "kind": "run", "head": "mos", "corpus": "ptb", "split": "test"},
        "eps": precision(eps, assumed=assumed),
        "rank_by_rule": counts_by_rule(spectrum.values, spectrum.shape, precision(eps).value, raw),
        "bound": {"raw": 12, "centered": 11, "why": "algebra"},
        "embedding_size": 10,
        "seconds": 1.25,
        "peak_memory_bytes": 3 << 29,
    }
    return report_of(spectrum, raw, centered, **{**values, **changes})


MATRICES = {
    "low rank": np.outer(np.arange(1.0, 9), np.arange(1.0, 6)) + np.eye(8, 5),
    "rank zero": np.zeros((8, 5)),
    "full rank": np.random.default_rng(0).standard_normal((8, 5)),
    "infinite gap": np.diag([3.0, 2.0, 0.0, 0.0]),
    "one entry": np.ones((1, 1)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_the_dictionary_is_valid_json_and_html_is_escaped(name: str) -> None:
    """It has no NaN and no infinity; tests/golden has its keys."""
    found = report(MATRICES[name], source={"path": "<script>&"})
    json.dumps(found.to_dict(), allow_nan=False)
    assert ">&lt;script&gt;&amp;: " in found._repr_html_()
    assert found._repr_html_().count("<tr>") == len(found.rows()) >= 5


def test_the_numbers_in_it() -> None:
    matrix = MATRICES["low rank"]
    found = report(matrix).to_dict()
    values = np.linalg.svd(matrix, compute_uv=False)
    centred = np.linalg.svd(matrix - matrix.mean(1, keepdims=True), compute_uv=False)
    assert (found["contexts"], found["vocab"], found["embedding_size"]) == (8, 5, 10)
    assert found["rank"]["value"] == np.linalg.matrix_rank(matrix) == 5
    assert found["rank"]["sigma_1"] == pytest.approx(values[0])
    assert found["rank_centered"]["sigma_r"] == pytest.approx(centred[3])
    assert found["rank_by_rule"] == {"press": 5, "numpy": 5, "gap": 5}
    assert found["effective_rank"]["1e-4"] == effective_rank(values, epsilon=1e-4)
    assert found["effective_rank_centered"]["1e-4"] == effective_rank(centred, epsilon=1e-4)
    assert found["stable_rank"] == pytest.approx(np.linalg.norm(matrix) ** 2 / values[0] ** 2)
    assert found["eps"] == {"value": 2.0**-23, "dtype": "float32", "assumed": False}
    assert (found["seconds"], found["peak_memory_bytes"], found["version"]) == (1.25, 3 << 29, __version__)


NOISE, SMOOTH = np.random.default_rng(0).standard_normal((60, 40)), np.diag(np.geomspace(1, 1e-16, 40))


@pytest.mark.parametrize(
    ("matrix", "options", "patterns"),
    [
        (SMOOTH, {}, [r" rank  between \d+ and \d+, indeterminate", r"by rule  press \d+, numpy \d+, gap \d+",
                      r"evidence, rank  \d+ at the tolerance; tolerance [\d.e-]+, σ_1 "]),
        (NOISE, {"method": "sketch", "width": 8}, [r" rank  ≥ \d+"]),
        (np.eye(30), {"eps": 0.9}, [r" rank  between 0 and 30, indeterminate"]),
    ],
)  # fmt: skip
def test_what_is_open_is_said(matrix: NDArray[np.float64], options: dict[str, Any], patterns: list[str]) -> None:
    found = rank(matrix, kind="matrix", **{"eps": "float32", **options})
    assert all(re.search(pattern, found.details()) for pattern in patterns)
    assert "rank" in found.indeterminate


@pytest.mark.parametrize("operator", [operator.gt, operator.eq, operator.ne])
@pytest.mark.parametrize("number", [10, np.int64(10)])
def test_a_comparison_with_a_number_says_what_to_write(operator: Any, number: Any) -> None:
    found = report(MATRICES["low rank"]).rank
    with pytest.raises(TypeError, match=r"a rank has an interval: compare \.value, \.low or \.high with"):
        operator(found, number)
    assert found == replace(found) != replace(found, value=found.value + 1)


def test_figures() -> None:
    found = replace(report(np.diag([4.0, 2.0, 1.0, 0.0])), bound={"raw": 3, "centered": 2, "why": "made up"})
    (ax,) = found.plot(style="iclr").figure.axes
    assert [text.get_text() for text in ax.texts] == ["tolerance", "bound 3"]
    assert [line.get_ydata().tolist() for line in ax.lines if line.get_label() == "a"] == [[1.0, 0.5, 0.25]]
    given = Figure().add_subplot()
    assert report(np.diag([4.0, 2.0, 1.0, 0.0])).plot(given, log=False) is given
    (line,) = given.lines
    assert np.asarray(line.get_xdata())[1:].tolist() == pytest.approx([0.25, 0.5, 1.0])
    assert np.asarray(line.get_ydata()).tolist() == [25, 50, 75, 100]
    panels = found.plot(part="both", log=False).figure.axes
    assert [panel.get_title() for panel in panels] == ["raw", "raw", "row-centred", "row-centred"]
    assert [panel.get_yscale() for panel in panels] == ["function", "log"] * 2
    plt.close("all")
    with pytest.raises(ConfigurationError, match="unknown part 'both of them' of a spectrum; it is one of raw,"):
        found.plot(given, part="both of them")


def _low_rank_log_probs(scale: float, dtype: type[np.floating], *, d: int = 5) -> NDArray[np.floating]:
    rng = np.random.default_rng(0)
    logits = scale * rng.standard_normal((400, d)) @ rng.standard_normal((d, 60))
    return (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(dtype)


@pytest.mark.parametrize("method", ["dense", "gram", "tsqr"])
def test_centred_tolerance_is_its_own_unless_the_raw_entries_are_coarser(method: str) -> None:
    """Nearly uniform rows: what centring leaves is small, the rounding of log P ≈ −log M is not."""
    flat, steep = (rank(_low_rank_log_probs(scale, np.float32), method=method) for scale in (0.01, 3.0))
    assert [(each.rank.value, each.rank_centered.value) for each in (flat, steep)] == [(6, 5)] * 2
    press = [tolerance(r.rank_centered.sigma_1, (400, 60), 2.0**-23) for r in (flat, steep)]
    norm = np.linalg.norm(_low_rank_log_probs(0.01, np.float32).astype(np.float64))
    assert flat.rank_centered.tolerance == pytest.approx(0.5 * 2.0**-23 * norm, rel=1e-6)
    assert flat.rank_centered.tolerance > press[0]
    assert steep.rank_centered.tolerance == pytest.approx(press[1], rel=1e-12)


def test_computations_that_differ_are_saved_apart(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Same model, same corpus, same shape: the split, the precision and the method must still tell them apart."""
    seen: list[Path] = []

    class Recorder(computing.SavedState):
        def restore(self, method: Any) -> Any:
            found = super().restore(method)
            seen.append(self._paths[-1])
            return found

    monkeypatch.setattr(computing, "LONG", 0)
    monkeypatch.setattr(computing, "SavedState", Recorder)
    options: list[dict[str, Any]] = [{}, {"split": "valid"}, {"dtype": "float64"}, {"method": "tsqr"}, {"contexts": 41}]
    for option in options:
        rank(runs["mos"], **{"contexts": 40, "method": "gram", "eps": 1e-3, **option})
    rank(runs["mos"], contexts=40, method="gram", eps=1e-3)
    assert seen[-1] == seen[0]
    assert len({*seen}) == len(options)
