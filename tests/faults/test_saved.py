"""Saved results that hold other values than those that were written."""

from __future__ import annotations

import copy
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attacks import promise
from attacks.damage import REMOVED, with_value
from softmax_bottleneck.errors import BottleneckError
from softmax_bottleneck.figures import REGISTRY, read
from softmax_bottleneck.figures.demo_table import read as read_reports
from softmax_bottleneck.figures.demo_table import table as demo_table
from softmax_bottleneck.report import Contents, read_saved
from softmax_bottleneck.report.page import curves
from softmax_bottleneck.report.sections import comparison_table, provenance, published_table

VALUES = [
    *(None, "x", "\x1b[31m\r\n", [], {}, REMOVED),
    *(-1, 0, 0.5, True, 10**18, 10**30, math.inf, math.nan, 1e308, 5e-324),
]
"""What takes the place of each value of a result."""
RESULTS = {
    "report": ("spectra", "effective-ranks", "lms-figure-4", "lms-table-2"),
    "rank": ("spectra", "row-centring"),
    "several": (),
    "mos.epoch-1": ("training-course", "training-course-table"),
    "cells": ("lms-figure-2", "lms-figure-6", "attainable-kl"),
    "concentrations": ("lms-figure-5",),
    "comparison": ("mos-table-14",),
    "score": ("mos-table-1",),
    "dialog": ("mos-table-4",),
    "divergence": ("mos-table-11",),
    "bench": ("mos-table-13", "bench-training"),
    "heads": ("bench-heads",),
    "study": ("transformer-study", "transformer-study-figure"),
    "frozen": ("frozen-body", "frozen-body-figure"),
    "profile": (),
}
"""Files of every kind, and figures and tables that are made of each."""
FORMATS = ("md", "tex", "csv")


def places(content: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to each value, and to the first of each list."""
    inside = (
        content.items() if isinstance(content, dict) else enumerate(content[:1]) if isinstance(content, list) else ()
    )
    for key, value in inside:
        yield (*above, key)
        yield from places(value, (*above, key))


def _read(file: Path, figures: Sequence[str]) -> None:
    """Read a file with everything that reads its kind; each shows it, or refuses it in one sentence."""

    def draw() -> None:
        results = read(file.parent)
        for name in figures:
            data = REGISTRY[name].compute(results)
            REGISTRY[name].missing(data)
            if len(data):
                REGISTRY[name].save(data, file.parent / name, formats=FORMATS, style={})

    for reader in (draw, lambda: sections(read_saved([file])), lambda: demo_table(read_reports(file.parent))):
        sentence = ""
        try:
            reader()
        except BottleneckError as error:
            sentence = str(error)
        assert not re.search(r"pydantic|\n", sentence)


def sections(contents: Contents) -> None:
    """Make the parts of a page."""
    json.dumps(curves(contents), allow_nan=False)
    comparison_table(contents)
    published_table(contents)
    for model in contents.models:
        assert isinstance(model.report.verdict, str)
        provenance(model)


@pytest.mark.parametrize("name", RESULTS)
def test_every_value_of_a_result_may_be_another(name: str, place: Callable[..., Path]) -> None:
    folder = place("more")
    file = folder / "one" / f"{name}.json"
    file.parent.mkdir()
    for beside in (folder / "more").glob(f"{name}.*"):
        shutil.copy(beside, file.parent)
    content = json.loads(file.read_text())
    assert read(file.parent).unknown == ()
    _read(file, RESULTS[name])

    @settings(max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=[*HealthCheck])
    @given(where=st.sampled_from([*places(content)]), value=st.sampled_from(VALUES))
    def attack(where: tuple[Any, ...], value: Any) -> None:
        changed = copy.deepcopy(content)
        section = reduce(lambda section, key: section[key], where[:-1], changed)
        if value is REMOVED:
            del section[where[-1]]
        else:
            section[where[-1]] = value
        file.write_text(json.dumps(changed))
        _read(file, RESULTS[name])

    attack()


def test_other_files_beside_results_are_named(place: Callable[..., Path]) -> None:
    folder = place("results")
    with_value("test_perplexity", REMOVED)(folder / "results" / "mos.json")
    done = promise.run(["report", "results", "--out", "page.html"])
    assert (done.code, "results/mos.json" in done.stderr) == (0, True)


def test_effective_ranks_of_a_sketch_are_unknown(place: Callable[..., Path]) -> None:
    folder = place("more")
    with_value("effective_rank.1e-3", None)(folder / "more" / "mos.epoch-1.json")
    line = "figures training-course-table --results more --format md --out drawn"
    promise.check(promise.run(line.split()), codes=(0,))
    assert "unknown" in (folder / "drawn" / "training-course-table.md").read_text()


def test_a_gallery_replaces_no_result(place: Callable[..., Path]) -> None:
    folder = place("results")
    before = promise.snapshot(folder)
    line = "figures --results results --gallery results/mos.json"
    assert "a gallery ends in .md" in promise.check(promise.run(line.split()))
    promise.check_kept(before, folder)
