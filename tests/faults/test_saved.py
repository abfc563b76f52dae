"""Saved results, states of training and cells that hold other values than those that were written."""

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
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attacks import damage, promise
from attacks.damage import REMOVED, Damage, with_value
from softmax_bottleneck.bench.demo_table import read as read_reports
from softmax_bottleneck.bench.demo_table import table as demo_table
from softmax_bottleneck.errors import BottleneckError
from softmax_bottleneck.figures import REGISTRY, read
from softmax_bottleneck.language_models import checkpoint
from softmax_bottleneck.report import Contents, read_saved
from softmax_bottleneck.report.page import curves, safe_json
from softmax_bottleneck.report.sections import comparison_table, provenance, published_table

VALUES = [
    None,
    "x",
    [],
    {},
    -1,
    0,
    0.5,
    True,
    10**18,
    10**30,
    math.inf,
    math.nan,
    1e308,
    5e-324,
    "\x1b[31m\r\n",
    REMOVED,
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
    safe_json(curves(contents))
    comparison_table(contents)
    published_table(contents)
    for model in contents.models:
        assert model.verdict
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


REFUSED: dict[str, tuple[str, Any]] = {
    "test_perplexity": ("report", math.nan),
    "report.source": ("report", {"path": 5}),
    "report.certificate": ("report", REMOVED),
    "report.version": ("report", "99.0"),
    "more": ("report", reduce(lambda deep, _: [deep], range(200), 0)),
    "cells.0.kl": ("cells", None),
    "curves.0.ranks": ("concentrations", [1]),
    "sources": ("comparison", [{"path": "a"}]),
    "bleu": ("dialog", {"scores": {"BLEU": 5}}),
    "histogram": ("divergence", {"edges": [0.0, 1.0], "counts": [0]}),
    "cases.softmax.epoch_seconds": ("bench", 0),
}


@pytest.mark.parametrize("where", REFUSED)
def test_a_command_names_the_file_that_holds_something_else(where: str, refusal: Callable[..., str]) -> None:
    name, value = REFUSED[where]
    command = "figures mos-table-13 --results more --format csv --out drawn"
    assert f"more/{name}.json" in refusal(("more",), f"more/{name}.json", with_value(where, value), command)


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
    assert "it is part of what is read" in promise.check(promise.run(line.split()))
    promise.check_kept(before, folder)


def state(change: Callable[[dict[str, torch.Tensor], dict[str, Any]], object]) -> Damage:
    """Change the tensors and the numbers of a state, which keeps a checksum that holds."""

    def apply(file: Path) -> None:
        tensors, numbers = checkpoint.read_state(file)
        change(tensors, numbers)
        checkpoint.write_state(file, tensors, numbers)

    return apply


def tensors(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Damage:
    """Change the tensors of a state whose names hold a text."""
    return state(lambda held, numbers: held.update({key: change(held[key]) for key in held if name in key}))


STATES: dict[str, Damage] = {
    "half written": damage.cut(0.5),
    "one bit flipped": damage.flip(0.9),
    "a link to itself": damage.loop,
    "another file of tensors": lambda path: path.write_bytes((path.parents[1] / "model.safetensors").read_bytes()),
    "a negative place": state(lambda tensors, numbers: numbers.update(position=-5)),
    "a count of 10^30": state(lambda tensors, numbers: numbers.update(epoch=10**30)),
    "an unknown number": state(lambda tensors, numbers: numbers.update(unknown=1)),
    "weights of another shape": tensors("model.", lambda tensor: tensor[:1].clone()),
    "a random state cut short": tensors("random.", lambda tensor: tensor[:9].clone()),
    "no weights": state(lambda tensors, numbers: [tensors.pop(key) for key in [*tensors] if "model." in key]),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_of_training_that_is_none(
    name: str, originals: Callable[[str], Path], refusal: Callable[..., str]
) -> None:
    (original,) = (originals("half") / "trainer_state").iterdir()
    file = f"half/trainer_state/{original.name}"
    assert file in refusal(("half", "text", "m.npy"), file, STATES[name], "train --out half --resume")


GRID = "synthetic --alpha 1 --vocab 5 --dim 2 --models softmax --contexts 20 --seeds 2 --cycles 1 --out grid --dry-run"
CELLS: dict[str, Damage] = {
    "cut short": damage.cut(0.6),
    "null": damage.write(b"null"),
    "another format": with_value("cell.format", 99),
    "another result": with_value("result.kl", 0.5),
    "no checksum": with_value("sha256", REMOVED),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_that_is_none_is_fitted_again(name: str, place: Callable[..., Path]) -> None:
    folder = place("grid")
    assert "2 cells, 0 to do" in promise.run(GRID.split()).stdout
    file = sorted((folder / "grid" / "cells").iterdir())[0]
    CELLS[name](file)
    before = promise.snapshot(folder)
    done = promise.run(GRID.split())
    promise.check(done, codes=(0,))
    assert "2 cells, 1 to do" in done.stdout
    assert done.stderr.splitlines() == [
        f"{file.relative_to(folder)} is damaged or was changed; its cell will be computed again"
    ]
    promise.check_kept(before, folder)


def test_a_cell_that_cannot_be_read(originals: Callable[[str], Path], refusal: Callable[..., str]) -> None:
    file = f"grid/cells/{min(each.name for each in (originals('grid') / 'cells').iterdir())}"
    assert file in refusal(("grid",), file, damage.loop, GRID)
