"""A folder of results: what is found in it, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.figures import SavedResults, read

from .conftest import cell, report, write


def test_files_say_what_they_are(results: SavedResults) -> None:
    assert [saved.model for saved in results.of("demo") if saved.family == "demo"] == [
        "softmax", "moc", "mos", "lms-plif",
    ]  # fmt: skip
    assert list(results.spectra) == ["demo/lms-plif", "demo/moc", "demo/mos", "demo/softmax", "smollm2/valid"]
    assert {saved.kind for saved in results.saved} == {
        "demo", "synthetic", "concentrations", "comparison", "kld", "perplexity", "bench", "transformer-study",
        "frozen-body", "rank", "spam",
    }  # fmt: skip
    assert results.unknown == ()


@pytest.mark.parametrize(
    ("key", "metric", "more", "expected"),
    [
        ("ptb/mos", "perplexity", {}, [56, 57, 58]),
        ("ptb/mos", "perplexity", {"split": "valid"}, [61, 62, 63]),
        ("ptb/mos", "perplexity", {"how": "dynamic"}, [48]),
        ("ptb/mos", "perplexity", {"how": "dynamic", "split": "valid"}, []),
        ("ptb/mos", "pairwise KL", {}, [4.5, 4.5, 4.5]),
        ("ptb/mos", "pairwise KL", {"split": "valid"}, [5.25]),
        ("ptb/kn5", "perplexity", {}, [pytest.approx(128)]),
        ("text8/mos7", "bits per character", {}, [pytest.approx(1.5)]),
        ("ptb/gss", "perplexity", {}, []),
        ("ptb/mos", "seconds an epoch", {}, []),
        ("ptb/mos", "rank", {}, [9981] * 3),
        ("ptb/mos", "rank", {"split": "valid"}, []),
        ("ptb/mos", "rank", {"contexts": 50}, [9981] * 3),
        ("ptb/mos", "rank", {"contexts": 33_320}, []),
        ("ptb/mos", "perplexity", {"how": "finetuned"}, [54]),
        ("ptb/mos", "rank", {"how": "finetuned"}, [6]),
    ],
)
def test_numbers_of_a_model_are_of_all_its_seeds(
    key: str, metric: str, more: dict[str, Any], expected: list[float], folder: Path
) -> None:
    write(folder / "ptb-finetuned" / "mos.json", report("mos", perplexity=54.0))
    assert [*read(folder).numbers(key, metric, **more)["value"]] == expected


def test_published_and_measured_numbers_have_one_name(results: SavedResults) -> None:
    frame = results.frame[(results.frame["family"] == "ptb") & (results.frame["model"] == "mos")]
    tested = frame[(frame["metric"] == "perplexity") & (frame["split"] == "test") & frame["epoch"].isna()]
    assert [*tested[tested["kind"] == "demo"]["value"]] == [56, 57, 58]
    yang = tested[tested["source"] == "Yang et al. 2018, table 1"]
    assert [*yang["value"]] == [55.97]
    assert [*tested["seed"].isna()] == [*(tested["kind"] == "published")]


def test_the_same_result_twice_is_no_contradiction_and_the_spectrum_of_another_seed_is_not_drawn(folder: Path) -> None:
    shutil.copy(folder / "demo" / "mos.json", folder / "demo" / "mos.again.json")
    assert [*read(folder).numbers("demo/mos", "perplexity")["value"]] == [90]
    write(folder / "demo" / "mos-1.json", report("mos", seed=1))
    shutil.copy(folder / "demo" / "mos.npz", folder / "demo" / "mos-1.npz")
    np.savez(folder / "demo" / "mine.npz", logits=np.eye(3))  # an archive of the user's
    assert list(read(folder).spectra) == ["demo/lms-plif", "demo/moc", "demo/mos", "demo/softmax", "smollm2/valid"]


def test_no_folder_or_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the folder .*nowhere does not exist; name one of results"):
        read(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match=r"holds no results; 'bottleneck demo' and '--json FILE'"):
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
            "ptb/softmax.json",
            report("softmax", vocab=300),
            r"softmax\.json has 300 tokens, and the corpus of the preset ptb-softmax, .* has 10,000",
        ),
        (
            "more.json",
            {"kind": "synthetic", "cells": [cell("lms", 100, 5, 0, 0.1, kl=3.0)]},
            r"more\.json and .*alpha-0\.1\.json are of the same measurement",
        ),
    ],
)
def test_damaged_and_contradicting_files_are_refused(file: str, content: Any, error: str, folder: Path) -> None:
    (folder / file).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=error):
        read(folder)


def test_json_without_a_kind_is_left_out_and_told(folder: Path) -> None:
    for name, content in (("list.json", [1]), ("other.json", {"a": 1}), ("text.json", "x"), ("config.json", {})):
        write(folder / name, content)  # the last is a run's
    assert [path.name for path in read(folder).unknown] == ["list.json", "other.json", "text.json"]
