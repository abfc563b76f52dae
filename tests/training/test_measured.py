"""What a preset says was measured is what the committed reports say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from softmax_bottleneck.training import PRESETS
from softmax_bottleneck.training.presets import Preset, find

RESULTS = Path(__file__).parents[2] / "figures" / "results"
FAMILIES = ("ptb-small", "ptb-small-nt-asgd", "ptb-small-mos", "ptb-fast")
SAID = re.compile(r"test perplexity (\d+\.(\d+))[^,]*, rank (\d[\d,]*)(?: to ([\d,]+))?(?: \(([\d,]+) to ([\d,]+)\))?")
"""Perplexity and its decimals; the rank, or the least and the largest of several seeds; the ends of its interval."""


def _reports(preset: Preset) -> list[dict[str, Any]]:
    """Read the preset's reports, one of each seed."""
    name = re.compile(re.escape(preset.model) + r"(-\d)?")
    files = [path for path in (RESULTS / preset.family).glob("*.json") if name.fullmatch(path.stem)]
    return [json.loads(path.read_text(encoding="utf-8")) for path in files]


@pytest.mark.parametrize("name", [preset.name for preset in PRESETS.values() if preset.family in FAMILIES])
def test_perplexity_and_rank(name: str) -> None:
    preset = find(name)
    reports = _reports(preset)
    if not reports:
        assert preset.expected == "not measured yet"
        return
    said = SAID.search(preset.expected)
    assert said is not None
    ranks = [report["report"]["rank"] for report in reports]
    assert round(mean(report["test_perplexity"] for report in reports), len(said[2])) == float(said[1])
    least, largest, low, high = (number and int(number.replace(",", "")) for number in said.groups()[2:])
    assert {least, largest or least} == {choice(rank["value"] for rank in ranks) for choice in (min, max)}
    if not all(rank["determinate"] for rank in ranks):
        assert (low, high) == (min(rank["low"] for rank in ranks), max(rank["high"] for rank in ranks))
