"""The benchmark of the heads: what it compares is the same loss, and what it says follows from what it measured."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch

from softmax_bottleneck import heads
from softmax_bottleneck.bench import bench_heads
from softmax_bottleneck.bench import heads as bench
from softmax_bottleneck.bench.heads import plain_nll
from softmax_bottleneck.errors import ConfigurationError

LARGE = [("products", ""), ("softmax", ""), ("softmax", " plain"), ("mos", "")]


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


def test_the_report_follows_from_the_measurements(
    here: Callable[..., list[set[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes as many seconds as it has components, and a plain one has nine times the memory."""
    monkeypatch.setattr(bench.plugins, "names", lambda group: ["mixture"] if group == "heads" else [])
    monkeypatch.setattr(heads, "find", lambda name: heads.REGISTRY["mos" if name == "mixture" else name])
    groups = here(lambda name, case: (case["components"], 9000 if case["plain"] else 1000))
    report = bench_heads(shrink=100)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    cases = report["cases"]
    assert {case["case"]["head"] for case in cases.values()} == {"products", "mixture", *heads.REGISTRY}
    for name, case in cases.items():
        if f"{name} plain" in cases:
            assert case["loss"] == pytest.approx(cases[f"{name} plain"]["loss"], rel=1e-5)
    goals = {goal["what"]: goal for goal in report["goals"]}
    memory = goals["MoS, K = 15: memory / plain"]
    assert (memory["measured"], memory["met"]) == (pytest.approx(1 / 9), True)
    assert not goals["MoS, K = 15: plain seconds / ours"]["met"]
    assert report["slowdown"]["ours"]["7"] == 7
    assert {"products", "mos K=15", "mos K=15 plain"} <= groups[0]
    assert {"products d=400", "softmax", "softmax plain", "lms-plif", "gss", "mixture plain"} <= groups[1]
    assert groups[2] == {f"{what} M=100,000{plain}" for what, plain in LARGE}
    products = 6 * 8 * 15 * 280 * 100 / 15
    assert cases["products"]["gflops"] == pytest.approx(products / 1e9)
    assert cases["moc"]["gflops"] == pytest.approx(6 * 14 * 400 * 100 / 15 / 1e9)  # it mixes before its products
    some = bench_heads(only=["softmax", "gss"], shrink=100)
    assert {case["case"]["head"] for case in some["cases"].values()} == {"products", "softmax", "gss"}
    assert some["slowdown"] == {}
    assert [goal["what"] for goal in some["goals"] if "MoS" in goal["what"]] == []
    assert any(goal["what"] == "GSS: seconds / Softmax" and goal["measured"] == 1 for goal in some["goals"])
    with pytest.raises(ConfigurationError, match="no head 'sotfmax' is timed; those timed are doc, gss, lms-net"):
        bench_heads(only=["sotfmax"])
    of_large = cases["mos M=100,000"]["gflops"] / cases["products M=100,000"]["gflops"]
    assert cases["mos M=100,000"]["share"] == of_large
