"""The demo's table: one seed, several seeds and adaptive scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.figures import SavedResults, read
from softmax_bottleneck.figures.demo_table import cells, table
from softmax_bottleneck.figures.results import Saved

ROOT = Path(__file__).parents[2]


SOFTMAX = json.loads((ROOT / "figures" / "results" / "demo" / "softmax.json").read_text(encoding="utf-8"))


def _report(name: str, perplexity: float, rank: int, *, seed: int = 0, **more: Any) -> dict[str, Any]:
    """The committed report of the demo's Softmax with other numbers."""
    bound = {"raw": 10, "centered": 9} if name == "softmax" else {"raw": None, "centered": None}
    numbers = {"parameters": 12_345, "test_perplexity": perplexity, "kld": 4.5, "train_seconds": 9.6}
    report = {
        **SOFTMAX["report"],
        "embedding_size": 8,
        "bound": {**bound, "why": ""},
        "source": {"path": f"runs/{name}", "head": name.removesuffix("-k3")},
    }
    for key, (value, low, high) in {"rank": (rank, rank, rank), "rank_centered": (1_234, 900, 2_000)}.items():
        report[key] = {**report[key], "value": value, "low": low, "high": high, "determinate": low == high}
    return {**SOFTMAX, "name": name, "seed": seed, **numbers, "report": report, **more}


def _cells(reports: list[dict[str, Any]]) -> list[list[str]]:
    saved = [Saved(Path(f"{place}.json"), "demo", "", each["name"], each) for place, each in enumerate(reports)]
    header, rows = cells(SavedResults(Path(), tuple(saved)).frame)
    return [header, *rows]


def test_a_row_is_a_model_with_mean_deviation_and_range_of_its_seeds() -> None:
    """One seed shows the interval of a rank that is not determinate; adaptive scores are of the seeds that have them.

    (90 + 92 + 97) / 3 = 93, and √((9 + 1 + 16) / 2) = √13.
    """
    softmax = _report("softmax", 99.999, 10, adaptive={"dynamic": 80.25, "cache": 85.125})
    mos = [_report("mos", value, rank, seed=k) for k, (value, rank) in enumerate([(90, 70), (92, 1_070), (97, 80)])]
    rank = "900 to 2,000 (1,234)"
    assert _cells([softmax, *mos]) == [
        ["model", "parameters", "test perplexity", "dynamic", "with cache", "d", "bound (row-centred)", "rank",
         "row-centred rank", "pairwise KL", "seconds"],
        ["softmax", "12,345", "100.00", "80.25", "85.12", "8", "10 (9)", "10", rank, "4.500", "10"],
        ["mos", "12,345", "93.00 ± 3.61", "–", "–", "8", "none", "70 to 1,070", rank, "4.500 ± 0.000", "10"],
    ]  # fmt: skip
    assert "dynamic" not in _cells(mos)[0]


def test_a_folder_is_read_in_the_order_of_registry_name_and_seed(tmp_path: Path) -> None:
    for name, seed in [("mos-k3", 0), ("mos", 1), ("gss", 0), ("mos", 0), ("softmax", 0)]:
        (tmp_path / f"{name}-{seed}.json").write_text(json.dumps(_report(name, 90.0, 10, seed=seed)), encoding="utf-8")
    order = [(saved.model, saved.seed) for saved in read(tmp_path).saved]
    assert order == [("softmax", 0), ("mos", 0), ("mos", 1), ("mos-k3", 0), ("gss", 0)]


@pytest.mark.parametrize("text", ["{", '{"kind": "demo", "name": "mos"}'])
def test_what_is_no_report_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"other\.json is damaged or"):
        read(tmp_path)
    (tmp_path / "other.json").write_text('{"kind": "spam"}', encoding="utf-8")
    with pytest.raises(ConfigurationError, match="there are no reports; 'bottleneck demo --out DIR' writes them"):
        table(read(tmp_path).frame)


@pytest.mark.parametrize("family", ["demo", "ptb-small", "ptb-small-nt-asgd"])
def test_the_table_fits_a_terminal(family: str) -> None:
    assert max(map(len, table(read(ROOT / "figures" / "results" / family).frame).splitlines())) <= 80
