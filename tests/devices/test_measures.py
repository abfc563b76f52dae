"""Every measurement on a pretended accelerator gives the CPU's numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import accelerator
import numpy as np
import pytest
import torch

import softmax_bottleneck as sb
from softmax_bottleneck.core.devices import resolve_device
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.measure.cost import estimate_cost
from softmax_bottleneck.spectrum import SpectrumSettings, matrix_spectrum
from softmax_bottleneck.synthetic.cells import Cell, run

TIMES = {"seconds", "spent", "peak_memory_bytes", "version", "driver"}
ROUNDOFF = {"sigma_next", "gap"}
"""Values of a rank at the roundoff, which every order of additions changes."""


def plain(value: Any) -> Any:
    """Return a result's numbers and texts, without what differs from run to run."""
    value = value.to_dict() if hasattr(value, "to_dict") else value
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key not in TIMES | ROUNDOFF}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def same(found: Any, expected: Any, *, rel: float = 1e-4) -> None:
    """Compare results, number by number."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            same(found[key], expected[key], rel=rel)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other, rel=rel)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=rel, abs=1e-6, nan_ok=True)
    else:
        assert found == expected


METHODS = ["dense", "gram", "tsqr", "sketch"]
MEASURES: dict[str, Callable[..., Any]] = {
    "kld": sb.kld,
    "gradient": partial(sb.gradient, sample=5),
    "perplexity": sb.perplexity,
    "compare": lambda source, **options: sb.compare(source, source.parent / "mos", **options),
    "argmaxable": sb.argmaxable,
    "need": sb.need,
}
"""Measurements of a run by name."""


@pytest.mark.parametrize(
    ("measure", "head", "float64"),
    [
        ("kld", "mos", False),
        ("gradient", "mos", False),
        ("gradient", "softmax", True),
        ("gradient", "softmax", False),
        ("perplexity", "lms-plif", False),
        ("compare", "softmax", True),
        ("argmaxable", "softmax", False),
        ("need", "softmax", True),
        ("need", "softmax", False),
    ],
)
def test_measures(
    measure: str, head: str, float64: bool, runs: dict[str, Path], short_corpus: Path, device: str, monkeypatch: Any
) -> None:
    _ = runs["mos"]  # what a comparison is with
    monkeypatch.setattr(accelerator.MODULE, "float64", float64)
    text = {} if measure == "argmaxable" else {"data": short_corpus}
    expected, found = (plain(MEASURES[measure](runs[head], device=where, **text)) for where in ("cpu", device))
    same(found, expected)


@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_ranks_of_a_run(method: str, runs: dict[str, Path], short_corpus: Path, device: str) -> None:
    for head in ("softmax", "mos"):
        how: dict[str, Any] = {"method": method, "width": 30, "data": short_corpus, "eps": 1e-6}
        expected, found = (sb.rank(runs[head], device=where, **how) for where in ("cpu", device))
        assert (found.rank.value, found.rank_centered.value) == (expected.rank.value, expected.rank_centered.value)
        np.testing.assert_allclose(
            found.spectrum.values, expected.spectrum.values, atol=1e-5 * expected.spectrum.values[0]
        )
        assert found.spectrum.method == expected.spectrum.method
        assert device in found.spectrum.driver


def test_a_matrix_on_the_device(device: str) -> None:
    matrix = torch.randn(60, 4, dtype=torch.float64) @ torch.randn(4, 30, dtype=torch.float64)
    for method in METHODS:
        expected = matrix_spectrum(matrix, SpectrumSettings(method=method, device="cpu"))
        for found in (
            matrix_spectrum(matrix.to(device), SpectrumSettings(method=method, device=device)),
            matrix_spectrum(matrix, SpectrumSettings(method=method, device=device)),
        ):
            np.testing.assert_allclose(found.values, expected.values, atol=1e-7 * expected.values[0])
            assert device in found.driver


def test_a_rank_without_float64(no_float64: None, runs: dict[str, Path], short_corpus: Path, device: str) -> None:
    expected, found = (sb.rank(runs["mos"], data=short_corpus, device=where) for where in ("cpu", device))
    assert found.to_dict()["decomposed_on"] == {"device": "cpu", "asked": device}
    assert f"on the CPU, because {device} has no float64" in str(found)
    assert found.rank.value == expected.rank.value
    assert found.spectrum.driver == expected.spectrum.driver
    assert estimate_cost(sb.open(runs["mos"], device=device), device=device).spectrum_seconds > 0
    with pytest.raises(ConfigurationError, match=f"{device} has no float64: use device='cpu'"):
        sb.rank(runs["mos"], device=device, dtype="float64")


def test_a_dump(runs: dict[str, Path], short_corpus: Path, tmp_path: Path, device: str) -> None:
    options = {"data": short_corpus}
    stores = [sb.dump(runs["mos"], tmp_path / f"{each}.zarr", device=each, **options) for each in ("cpu", device)]
    expected, found = (np.concatenate([block.log_probs for block in sb.open(store).blocks()]) for store in stores)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_head_and_a_model_on_the_device(device: str) -> None:
    head = sb.heads.build("mos", hidden_size=5, vocab_size=12, components=2)
    hidden, targets = torch.randn(10, 5), torch.randint(12, (10,))
    expected = plain(sb.gradient(head, hidden=hidden, targets=targets))
    same(plain(sb.gradient(head.to(device), hidden=hidden.to(device), targets=targets)), expected)
    same(plain(sb.gradient(head, hidden=hidden, targets=targets.to(device))), expected)  # states come from anywhere


@pytest.mark.parametrize(("model", "float64"), [("softmax", False), ("mos", True), ("lms", False)])
def test_a_synthetic_fit(model: str, float64: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator.MODULE, "float64", float64)
    cell = Cell(model=model, alpha=0.1, vocab=12, dim=3, contexts=20)
    short = {"fit": type(cell.fit)(first_cycle=2, cycles=1, rounds=1)}
    expected, found = (plain(run(Cell(**{**vars(cell), **short}), device=where)) for where in ("cpu", device))
    assert (expected.pop("device"), found.pop("device")) == ("cpu", device)
    same(found, expected, rel=1e-3)


def test_names_of_devices(device: str, bottleneck: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_device("auto") == resolve_device(device) == device
    assert resolve_device(f"{device}:0") == f"{device}:0"
    assert device in bottleneck("doctor").output
    for other in (f"{device}:1", "cuda", "mps"):
        with pytest.raises(ConfigurationError, match=f"torch does not see the device {other}: use device='cpu'"):
            resolve_device(other)
    monkeypatch.setattr(accelerator.MODULE, "available", False)
    assert resolve_device("auto") == "cpu"
