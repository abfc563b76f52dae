"""A folder of results: what is found in it, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.figures import SavedResults, read

from .conftest import cell, report, write


def test_files_are_known_by_content_and_place(results: SavedResults) -> None:
    assert [one["name"] for one in results.reports("demo")] == ["softmax", "moc", "mos", "lms-plif"]
    assert list(results.spectra) == ["demo/lms-plif", "demo/moc", "demo/mos", "demo/softmax", "smollm2/valid"]
    assert {saved.kind for saved in results.saved} == {
        "report", "cells", "concentrations", "comparison", "divergence", "evaluation", "bench", "transformer",
        "frozen", "rank", "spam",
    }  # fmt: skip
    assert results.unknown == ()


def test_numbers_of_a_model_are_of_all_its_seeds(results: SavedResults) -> None:
    assert results.numbers("ptb/mos", "perplexity") == [56, 57, 58]
    assert results.numbers("ptb/mos", "perplexity", split="valid") == [61, 62, 63]
    assert results.numbers("ptb/mos", "perplexity", how="dynamic") == [48]
    assert results.numbers("ptb/mos", "perplexity", how="dynamic", split="valid") == []
    assert results.numbers("ptb/mos", "pairwise KL") == [4.5, 4.5, 4.5]
    assert results.numbers("ptb/mos", "pairwise KL", split="valid") == [5.25]
    assert results.numbers("ptb/kn5", "perplexity") == [pytest.approx(128)]
    assert results.numbers("text8/mos7", "bits per character") == pytest.approx([1.5])
    assert results.numbers("ptb/gss", "perplexity") == []
    assert results.numbers("ptb/mos", "seconds an epoch") == []
    assert [rank["value"] for rank in results.ranks("ptb/mos")] == [9981] * 3
    assert results.ranks("ptb/mos", split="valid") == []
    assert len(results.ranks("ptb/mos", contexts=50)) == 3
    assert results.ranks("ptb/mos", contexts=33_320) == []


def test_a_variation_has_a_family_of_its_own(folder: Path) -> None:
    write(folder / "ptb-finetuned" / "mos.json", report("mos", perplexity=54.0))
    assert read(folder).numbers("ptb/mos", "perplexity", how="finetuned") == [54]
    assert [rank["value"] for rank in read(folder).ranks("ptb/mos", how="finetuned")] == [6]


def test_the_spectrum_of_another_seed_is_not_drawn(folder: Path) -> None:
    write(folder / "demo" / "mos-1.json", report("mos", seed=1))
    shutil.copy(folder / "demo" / "mos.npz", folder / "demo" / "mos-1.npz")
    assert list(read(folder).spectra) == ["demo/lms-plif", "demo/moc", "demo/mos", "demo/softmax", "smollm2/valid"]


def test_no_folder_or_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"the folder .*nowhere does not exist; name one of results with results"
    ):
        read(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match=r"holds no results; 'bottleneck demo', 'bottleneck synthetic"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "error"),
    [
        ("demo/mos.json", '{"name": "mos", ', r"demo/mos\.json is damaged or of another kind .*; write it again, or"),
        (
            "demo/mos.again.json",
            report("mos", perplexity=91.0),
            r"mos\.again\.json and .*mos\.json are of the same measurement and differ",
        ),
        (
            "more.json",
            {"alpha": 0.1, "cells": [cell("lms", 100, 5, 0, 0.1, kl=3.0)]},
            r"more\.json and .*alpha-0\.1\.json are of the same measurement",
        ),
    ],
)
def test_damaged_and_contradicting_files_are_refused(file: str, content: Any, error: str, folder: Path) -> None:
    (folder / file).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=error):
        read(folder)


def test_the_same_result_twice_is_not_a_contradiction(folder: Path) -> None:
    shutil.copy(folder / "demo" / "mos.json", folder / "demo" / "mos.again.json")
    assert len(read(folder).reports("demo")) == 5


def test_json_of_no_kind_is_left_out_and_told(folder: Path) -> None:
    for name, content in (("list.json", [1]), ("other.json", {"a": 1}), ("text.json", "x")):
        write(folder / name, content)
    assert [path.name for path in read(folder).unknown] == ["list.json", "other.json", "text.json"]
