"""Saved results that hold other values than those that were written: readers name them, or say what is unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attacks import promise
from attacks.damage import REMOVED, with_value


def test_other_files_beside_results_are_named(place: Callable[..., Path]) -> None:
    folder = place("results")
    with_value("kind", REMOVED)(folder / "results" / "mos.json")
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
