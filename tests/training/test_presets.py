"""Presets train, have the sizes that their papers print, siblings are alike, and texts say what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from softmax_bottleneck import checkpoint, heads
from softmax_bottleneck.language_models.model import LanguageModel
from softmax_bottleneck.training import PRESETS, RunConfig
from softmax_bottleneck.training.config import parse
from softmax_bottleneck.training.presets import Preset, find

from .conftest import train

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "presets.md").read_text(encoding="utf-8")
FAMILIES = {preset.family: preset for preset in PRESETS.values() if preset.head != "softmax"}


def _small(preset: Preset, corpus: Path) -> RunConfig:
    """The same model with small layers, on a small text, for one epoch."""
    values = preset.config.model_dump(mode="json")
    backbone, head = values["model"]["backbone"], values["model"]["head"]
    backbone["embedding_size"] = head["embedding_size"] = 4
    if "hidden_sizes" in backbone:
        # These heads take hidden states of the embeddings' size as they are.
        same = head["name"] in ("softmax", "sigsoftmax", "gss", "lms-plif")
        backbone["hidden_sizes"] = [*(size // 100 for size in backbone["hidden_sizes"][:-1]), 4 if same else 6]
    else:
        backbone["hidden_size"] = 8
    head |= {"knots": 50} if "knots" in head else {}
    values["training"] |= {"epochs": 1, "batch_size": 4, "bptt": 35}
    return parse({**values, "corpus": str(corpus)}, where="the test")


@pytest.mark.parametrize("preset", FAMILIES.values(), ids=FAMILIES)
def test_one_of_each_family_trains(preset: Preset, corpus: Path, tmp_path: Path) -> None:
    done = train(_small(preset, corpus), tmp_path)
    assert type(checkpoint.load(done.path).model.head) is heads.REGISTRY[preset.head]
    assert done.steps >= 2
    assert done.valid_perplexity < 100


PUBLISHED = {
    "ptb-softmax": 24.2, "ptb-mos": 21.5, "ptb-moc": 21.5, "ptb-sigsoftmax": 24.22, "ptb-gss": 24.22,
    "ptb-lms-plif": 24.32, "text8-softmax": 8.42, "text8-mos7": 8.45, "text8-mos10": 8.43, "1b-softmax": 119,
    "1b-mos7": 113, "wt2-mos": 35, "wt2-softmax": 33.556078,
}  # fmt: skip
"""Millions of parameters, to the printed digits: Yang et al. 2018, tables 1 to 3 and 12; Parthiban et al. 2021. The
last is 33M in both papers, which is 33.56 million without its fraction."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_papers_sizes(name: str) -> None:
    vocab_sizes = {"ptb": 10_000, "wikitext-2": 33_278, "text8": 27, "one-billion": 100_000}
    parameters = find(name).parameters(vocab_sizes[find(name).config.corpus])
    assert round(parameters / 1e6, len(str(PUBLISHED[name]).partition(".")[2])) == PUBLISHED[name]


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.initial])
def test_what_starts_from_another_has_its_model(name: str) -> None:
    own, other = (find(each).config for each in (name, find(name).initial))
    assert own.corpus == other.corpus == "ptb"
    shapes = [
        {key: weight.shape for key, weight in LanguageModel(config.model, vocab_size=20).named_parameters()}
        for config in (own, other)
    ]
    assert shapes[0] == shapes[1]


def test_the_page_has_what_every_preset_of_the_papers_expects() -> None:
    rows = dict(re.findall(r"^\| ((?:ptb|wt2|text8|1b)-\S+) +\|[^|]*\| ([^|]*?) +\|", PAGE, re.MULTILINE))
    of_papers = {name: preset for name, preset in PRESETS.items() if preset.family in ("ptb", "wt2", "text8", "1b")}
    assert {name: preset.expected.removeprefix("published: ") for name, preset in of_papers.items()} == rows
    assert rows["ptb-gss"].startswith("test 57.60, rank 8,276")


@pytest.mark.parametrize("family", ["demo", "ptb-small", "ptb-small-awd", "ptb-small-nt-asgd"])
def test_siblings_are_about_equal_in_size(family: str) -> None:
    """Within a tenth of the plain softmax, apart from PLIF's own knots; nothing else differs between them."""
    siblings = [preset for preset in PRESETS.values() if preset.family == family]
    sizes = {
        preset.head: (preset.parameters(10_000) or 0) - preset.config.model.head.settings.get("knots", 0)
        for preset in siblings
    }
    assert max(sizes.values()) <= 1.1 * sizes["softmax"], sizes
    assert min(sizes.values()) >= sizes["softmax"], sizes
    assert len({preset.config.training.model_dump_json() for preset in siblings}) == 1
    assert len({preset.config.model.head.settings["embedding_size"] for preset in siblings}) == 1


MEASURED = [p for p in PRESETS.values() if p.family in ("ptb-small", "ptb-small-nt-asgd", "ptb-small-mos", "ptb-fast")]
SAID = re.compile(r"test perplexity (\d+\.(\d+))[^,]*, rank (\d[\d,]*)(?: to ([\d,]+))?(?: \(([\d,]+) to ([\d,]+)\))?")
"""Perplexity and its decimals; the rank, or the least and the largest of several seeds; the ends of its interval."""


@pytest.mark.parametrize("preset", MEASURED, ids=lambda preset: preset.name)
def test_what_was_measured_is_what_the_committed_reports_say(preset: Preset) -> None:
    name = re.compile(re.escape(preset.model) + r"(-\d)?")  # one of each seed
    folder = ROOT / "figures" / "results" / preset.family
    files = [path for path in folder.glob("*.json") if name.fullmatch(path.stem)]
    reports: list[dict[str, Any]] = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    if not reports:
        assert preset.expected == "not measured yet"
        return
    said = SAID.search(preset.expected)
    ranks = [report["report"]["rank"] for report in reports]
    assert round(mean(report["test_perplexity"] for report in reports), len(said[2])) == float(said[1])
    least, largest, low, high = (number and int(number.replace(",", "")) for number in said.groups()[2:])
    assert {least, largest or least} == {choice(rank["value"] for rank in ranks) for choice in (min, max)}
    if not all(rank["determinate"] for rank in ranks):
        assert (low, high) == (min(rank["low"] for rank in ranks), max(rank["high"] for rank in ranks))
