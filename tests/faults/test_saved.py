"""Saved results, states of training and cells that hold other values than those that were written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from attacks import damage, promise
from attacks.damage import REMOVED, Damage, with_value
from softmax_bottleneck.language_models import checkpoint

DEEP: list[Any] = []
for _ in range(200):
    DEEP = [DEEP]
REPORT: list[tuple[str, Any]] = [
    *(("name", value) for value in (5, None, [])),
    *(("seed", value) for value in ("zero", -1, 10**30, 0.5)),
    *(("test_perplexity", value) for value in ("low", None, float("nan"), [], True)),
    *(("kld", value) for value in (float("inf"), {}, REMOVED)),
    *(("parameters", value) for value in ("many", -1, 10**30, 1.5)),
    *(("adaptive", value) for value in (5, {}, {"dynamic": 1.0}, {"dynamic": "x", "cache": 1.0})),
    *(("history", value) for value in (5, [5], [{"epoch": 1}], [{"epoch": "x", "valid_perplexity": 2.0}])),
    *(("function", value) for value in (5, {}, {"slopes": 5, "knots": [], "values": []})),
    *(("report", value) for value in (5, None, [], {})),
    *(("report.source", value) for value in (5, None, [], {}, {"path": 5}, {"path": "x", "head": 5})),
    *(("report.contexts", value) for value in (0, -1, "many", 10**30, True)),
    *(("report.bound", value) for value in (5, {}, {"raw": "none", "centered": None, "why": ""})),
    *(("report.eps", value) for value in (5, {}, {"value": float("nan"), "dtype": "float32", "assumed": False})),
    *(("report.rank", value) for value in (5, [], {}, REMOVED)),
    *(("report.rank.value", value) for value in ("six", None, -1, 2.5, True, float("nan"), REMOVED)),
    *(("report.rank.determinate", value) for value in ("yes", 5, REMOVED)),
    *(("report.rank_centered.low", value) for value in ("six", None, REMOVED)),
    *(("report.effective_rank", value) for value in (5, {"1e-3": "x"}, REMOVED)),
    *(("report.certificate", value) for value in (5, {}, REMOVED)),
    ("report.version", 5),
    ("more", DEEP),
]  # fmt: skip
COMMANDS = (
    "demo --reports results",
    "figures demo spectra --results results --format csv --out drawn",
    "report results --out page.html",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("where", "value"), REPORT, ids=[f"{where} {value!r}"[:40] for where, value in REPORT])
def test_a_report_that_holds_something_else(where: str, value: Any, command: str, place: Callable[..., Path]) -> None:
    _refused(place("results"), "results/mos.json", with_value(where, value), command)


def _refused(folder: Path, file: str, change: Damage, command: str) -> None:
    change(folder / file)
    before = promise.snapshot(folder)
    assert file in promise.check(promise.run(command.split()))
    promise.check_kept(before, folder)


@pytest.mark.parametrize("where", ["name", "test_perplexity", "report", "report.rank"])
def test_a_report_without_what_makes_it_one(where: str, place: Callable[..., Path]) -> None:
    folder = place("results")
    _refused(folder, "results/mos.json", with_value(where, REMOVED), COMMANDS[0])
    if where != "report.rank":  # other files beside reports are named, and passed over
        for command in COMMANDS[1:]:
            assert "results/mos.json" in promise.run(command.split()).stderr


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_a_report_of_a_newer_version(command: str, place: Callable[..., Path]) -> None:
    _refused(place("results"), "results/mos.json", with_value("report.version", "99.0"), command)


def test_a_gallery_replaces_no_result(place: Callable[..., Path]) -> None:
    folder = place("results")
    before = promise.snapshot(folder)
    line = "figures --results results --gallery results/mos.json"
    assert "it is part of what is read" in promise.check(promise.run(line.split()))
    promise.check_kept(before, folder)


OTHERS: list[tuple[str, str, Any]] = [
    *(("cells", "cells", value) for value in (5, [5], [{}], {})),
    *(("cells", "cells.0.kl", value) for value in ("low", float("nan"), REMOVED)),
    *(("cells", "cells.0.vocab", value) for value in (0, "many", 10**30)),
    *(("cells", "cells.0.reachable", value) for value in (5, {})),
    *(("cells", "cells.0.diverged", value) for value in ("no", None)),
    *(("concentrations", "curves.0.log_probs", value) for value in (5, [], [[1], [2]], [["x"], [1], [1]])),
    *(("concentrations", "curves.0.alpha", value) for value in ("x", float("inf"), None)),
    *(("comparison", "sources", value) for value in (5, [], [{"path": "a"}], ["a", "b"])),
    *(("comparison", "first_better", value) for value in (5, [5], [{}])),
    *(("comparison", "second_better.0.top", value) for value in ([], [[], 5], [[{"token": 5, "probability": 1}], []])),
    *(("evaluation", "perplexity", value) for value in ("low", float("nan"), None)),
    *(("evaluation", "source", value) for value in (5, {})),
    *(("evaluation", "bleu", value) for value in (5, {}, {"scores": {"BLEU": 5}})),
    *(("divergence", "pairs", value) for value in ("some", 0, None)),
    *(("divergence", "histogram", value) for value in (5, {}, {"edges": [], "counts": []})),
    *(("bench", "cases", value) for value in (5, [], {"softmax": 5})),
    *(("bench", "cases.softmax.epoch_seconds", value) for value in (0, "x", -1, float("nan"))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "where", "value"), OTHERS, ids=[f"{kind} {where} {value!r}"[:50] for kind, where, value in OTHERS]
)
def test_other_results_that_hold_something_else(kind: str, where: str, value: Any, place: Callable[..., Path]) -> None:
    command = "figures mos-table-13 --results more --format csv --out drawn"
    _refused(place("more"), f"more/{kind}.json", with_value(where, value), command)


def test_results_are_read_as_they_were_written(place: Callable[..., Path]) -> None:
    place("more", "results")
    for line in (*COMMANDS, "figures mos-table-13 lms-figure-5 --results more --format csv --out others"):
        assert promise.run(line.split()).code == 0


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
    "an optimizer of another shape": tensors("optimizer.", lambda tensor: torch.ones(3, 3, 3)),
    "a random state cut short": tensors("random.", lambda tensor: tensor[:9].clone()),
    "a recurrent state of another shape": tensors("carried.", lambda tensor: torch.ones(2)),
    "no weights": state(lambda tensors, numbers: [tensors.pop(key) for key in [*tensors] if "model." in key]),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_of_training_that_is_none(name: str, place: Callable[..., Path]) -> None:
    folder = place("half", "text", "m.npy")
    (file,) = (folder / "half" / "trainer_state").iterdir()
    _refused(folder, str(file.relative_to(folder)), STATES[name], "train --out half --resume")


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


def test_a_cell_that_cannot_be_read(place: Callable[..., Path]) -> None:
    folder = place("grid")
    file = sorted((folder / "grid" / "cells").iterdir())[0]
    _refused(folder, str(file.relative_to(folder)), damage.loop, GRID)
