"""Training steps of this package beside the plain formulation and plain torch, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from softmax_bottleneck.results.plotting import HEADS

from .base import cell, table
from .results import SavedResults

SHOWN = (
    "mos K=15", "mos K=10", "softmax", "sigsoftmax", "gss", "lms-plif", "moc", "mos-plif", "softmax M=100,000",
    "mos M=100,000",
)  # fmt: skip
"""The cases of heads in the README."""


@table("bench-heads", needs="bottleneck bench heads --json FILE", first="training step")
def heads(results: SavedResults) -> Iterator[dict[str, Any]]:
    """Seconds and memory of a training step of the output layers, forward and backward in float32, beside the plain
    formulation, and the share of the rate that the matrix products have alone (bottleneck bench heads).
    """
    for saved in results.of("bench"):
        cases = saved.content["cases"]
        for name in (name for name in SHOWN if "share" in cases.get(name, {})):
            case = cases[name]["case"]
            components = f", K = {case['components']}" if case["components"] > 1 else ""
            label = f"{HEADS[case['head']].label if case['head'] in HEADS else case['head']}{components}, "
            label += f"N = {case['contexts']:,}, d = {case['size']}, M = {case['vocab']:,}"
            share = 100 * cases[name]["share"]
            yield from _pair(label, "ours", cases[name])
            yield from _pair(label, "plain", cases.get(f"{name} plain"))
            yield cell(label, "of the products' speed", "", f"{share:.0f} %", value=share, source=str(saved.key))


@table("bench-training", needs="bottleneck bench training --json FILE", first="training step")
def training(results: SavedResults) -> Iterator[dict[str, Any]]:
    """Seconds and memory of a whole training step of the papers' models in float32, beside one of plain torch
    (bottleneck bench training).
    """
    for saved in results.of("bench"):
        cases = saved.content["cases"]
        for name, case in cases.items():
            if "epoch_seconds" in case and not case["case"]["plain"]:
                label = f"{case['case']['preset']}, {case['case']['batch_size']} columns of 70 tokens"
                yield from _pair(label, "ours", case)
                yield from _pair(label, "plain torch", cases.get(f"{name} plain"))


def _pair(label: str, whose: str, case: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield seconds and memory of one case as two cells; nothing for none."""
    if case is not None and case.keys() >= {"seconds", "memory_bytes"}:
        seconds, mebibytes = case["seconds"], case["memory_bytes"] / 2**20
        yield cell(label, f"seconds, {whose}", "", f"{seconds:#.3g}".rstrip("."), value=seconds, source="measured")
        yield cell(label, f"MiB, {whose}", "", f"{mebibytes:,.0f}", value=mebibytes, source="measured")
