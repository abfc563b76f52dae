"""The benchmark of the heads: what it compares is the same loss, and what it says follows from what it measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from softmax_bottleneck import heads
from softmax_bottleneck.bench import heads as bench
from softmax_bottleneck.bench.heads import Case, bench_heads, plain_nll
from softmax_bottleneck.bench.in_turn import Measured, in_turn
from softmax_bottleneck.errors import ConfigurationError


@pytest.mark.parametrize("name", heads.REGISTRY)
def test_the_plain_formulation_is_the_same_loss_with_the_same_gradients(name: str) -> None:
    torch.manual_seed(0)
    head = heads.build(name, hidden_size=6, vocab_size=30).double()
    hidden, targets = torch.randn(8, 6, dtype=torch.float64, requires_grad=True), torch.randint(30, (8,))
    losses = plain_nll(head, hidden, targets), head.nll(hidden, targets)
    torch.testing.assert_close(*losses, rtol=1e-12, atol=0)
    learned = [hidden, *head.parameters()]
    theirs, ours = (torch.autograd.grad(loss, learned) for loss in losses)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_heads_of_other_packages_are_timed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.plugins, "names", lambda group: ["mixture"] if group == "heads" else [])
    monkeypatch.setattr(heads, "find", lambda name: heads.REGISTRY["mos" if name == "mixture" else name])
    cases = bench._cases()
    assert cases["mixture"] == replace(bench.POINTWISE, head="mixture", components=15)
    assert cases["mixture plain"].plain


def test_the_report_follows_from_the_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case's work is done here, in this process, with seconds and bytes that depend on its name."""

    def measure(cases: Mapping[str, partial[Any]], **more: Any) -> dict[str, Measured]:
        groups.append({*cases})
        assert more["runs"] == 1
        found = {}
        for name, make in cases.items():
            (case,) = make.args
            scale = 9.0 if case.plain else 1.0
            found[name] = Measured([5.0, scale * case.components, 0.0], int(1000 * scale), [make()()])
        return found

    groups: list[set[str]] = []
    monkeypatch.setattr("softmax_bottleneck.bench.in_turn.in_turn", measure)
    found = bench_heads(shrink=100)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    cases = found["cases"]
    assert {case["case"]["head"] for case in cases.values()} == {"products", *heads.REGISTRY}
    assert cases["mos K=5"]["seconds"] == 5.0  # the median
    for name, case in cases.items():
        if f"{name} plain" in cases:
            assert case["loss"] == pytest.approx(cases[f"{name} plain"]["loss"], rel=1e-5)
    goals = {goal["what"]: goal for goal in found["asked"]}
    assert goals["MoS, K = 15: memory / plain"]["measured"] == pytest.approx(1 / 9)
    assert goals["MoS, K = 15: memory / plain"]["met"]
    assert not goals["MoS, K = 15: plain seconds / ours"]["met"]  # both have the median 5
    assert found["slowdown"]["ours"]["7"] == pytest.approx(5.0)
    assert {"products", "mos K=15", "mos K=15 plain", "softmax d=280"} <= groups[0]
    assert {"products d=400", "softmax", "softmax plain", "lms-plif", "gss", "sigsoftmax"} <= groups[1]
    large = {f"{what} M=100,000" for what in ("products", "softmax", "mos")}
    assert groups[2] == large | {"softmax M=100,000 plain"}
    of_large = cases["mos M=100,000"]["gflops"] / cases["products M=100,000"]["gflops"]
    assert cases["mos M=100,000"]["share"] == of_large


def test_some_heads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(cases: Mapping[str, Any], **more: Any) -> dict[str, Measured]:
        return {name: Measured([1.0], 1, [{"loss": 0.0}]) for name in cases}

    monkeypatch.setattr("softmax_bottleneck.bench.in_turn.in_turn", measure)
    found = bench_heads(only=["softmax", "gss"], shrink=100)
    assert {case["case"]["head"] for case in found["cases"].values()} == {"products", "softmax", "gss"}
    assert found["slowdown"] == {}
    assert not any("MoS" in goal["what"] for goal in found["asked"])
    assert any(goal["what"] == "GSS: seconds / Softmax" and goal["measured"] == 1 for goal in found["asked"])
    with pytest.raises(ConfigurationError, match="no head 'sotfmax' is timed; those timed are doc, gss, lms-net"):
        bench_heads(only=["sotfmax"])


def test_the_floor_is_three_products() -> None:
    case = Case(head="mos", contexts=3, size=5, vocab=7, components=2)
    assert case.floor == 3 * 2 * (3 * 2) * 5 * 7
    assert replace(case, head="moc").floor == 3 * 2 * 3 * 5 * 7


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from Linux's /proc")
def test_a_case_in_its_own_process_sees_the_plain_tensors() -> None:
    """N × K × M float32 numbers are 24 MB here; the plain step holds several times that, ours a few blocks at most."""
    case = Case(head="mos", contexts=300, size=4, vocab=5_000, components=4)

    cases = {"ours": partial(bench._work, case), "plain": partial(bench._work, replace(case, plain=True))}
    ours, plain = in_turn(cases, runs=2).values()
    assert len(ours.runs) == len(ours.results) == 2
    assert all(seconds > 0 for seconds in ours.runs)
    assert plain.memory_bytes > 2 * 300 * 4 * 5_000 * 4
    assert plain.memory_bytes > 1.3 * ours.memory_bytes
    assert ours.result["loss"] == pytest.approx(plain.result["loss"], rel=1e-5)
