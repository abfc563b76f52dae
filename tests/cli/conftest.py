"""A small world in which every example of the help texts works: tiny corpora, presets and trained runs."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from softmax_bottleneck import corpora
from softmax_bottleneck.cli import demo_runs
from softmax_bottleneck.core.files import make_folder
from softmax_bottleneck.corpora import PINNED, PinnedFile
from softmax_bottleneck.training import PRESETS, Preset, fit

HEADS = ("softmax", "moc", "mos", "lms-plif")
Bottleneck = Callable[..., Result]


def values_of(done: Result) -> dict[str, Any]:
    """Return the JSON that a command printed."""
    assert done.exit_code == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def _text(seed: int, lines: int) -> str:
    generator = np.random.default_rng(seed)
    words = [f"w{number}" for number in range(30)]
    return "".join(" ".join(line) + "\n" for line in generator.choice(words, size=(lines, 8)))


@pytest.fixture(scope="session")
def folder_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three texts over 31 types."""
    folder = tmp_path_factory.mktemp("corpus")
    for seed, (split, lines) in enumerate({"train": 80, "valid": 20, "test": 20}.items()):
        (folder / f"{split}.txt").write_text(_text(seed, lines), encoding="utf-8")
    return folder


def small(preset: Preset, corpus: Path) -> Preset:
    """Return the preset on a tiny corpus with a tiny model."""
    values = preset.config.model_dump(mode="json")
    head = values["model"]["head"] | {"embedding_size": 4}
    head |= {"knots": 200} if "knots" in head else {}
    backbone = {"name": "lstm", "embedding_size": 4, "hidden_size": 8, "layers": 1, "dropout": 0.1}
    training = {"epochs": 2, "batch_size": 4, "bptt": 10, "optimizer": {"learning_rate": 0.01}}
    values |= {"corpus": str(corpus), "model": {"backbone": backbone, "head": head}, "training": training}
    return replace(preset, values=values)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, folder_corpus: Path) -> Path:
    """A folder with ``demo/runs/NAME`` for the demo's four heads, and two of its reports."""
    folder = tmp_path_factory.mktemp("trained")
    for head in HEADS:
        done = fit(small(PRESETS[f"demo-{head}"], folder_corpus).config, folder / "demo" / "runs" / head, device="cpu")
        if head in ("softmax", "mos"):
            reports = make_folder(folder / "demo" / "reports")
            demo_runs.write_report(reports / head, head, 0, done, demo_runs.Study())
    return folder


@pytest.fixture(scope="session")
def presets(folder_corpus: Path) -> dict[str, Preset]:
    """Tiny presets in the place of those of the demo."""
    families = ("demo", "ptb-small")
    return {
        name: small(preset, folder_corpus) for name, preset in PRESETS.items() if preset.family.startswith(families)
    }


@pytest.fixture
def world(
    tmp_path: Path, trained: Path, folder_corpus: Path, presets: dict[str, Preset], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A fresh working directory with trained runs, tiny presets, an empty cache and a ``ptb.zip`` to import."""
    place = tmp_path / "world"
    shutil.copytree(trained, place)
    monkeypatch.chdir(place)
    monkeypatch.setenv("SOFTMAX_BOTTLENECK_CACHE", str(tmp_path / "cache"))
    for name, preset in presets.items():
        monkeypatch.setitem(PRESETS, name, preset)
    texts = {split: (folder_corpus / f"{split}.txt").read_bytes() for split in corpora.SPLITS}
    files = tuple(
        PinnedFile(split, f"ptb.{split}.txt", len(data), hashlib.sha256(data).hexdigest(), "http://127.0.0.1:9/")
        for split, data in texts.items()
    )
    monkeypatch.setitem(PINNED, "ptb", replace(PINNED["ptb"], files=files))
    with zipfile.ZipFile(place / "ptb.zip", "w") as archive:
        for file in files:
            archive.writestr(file.name, texts[file.split])
    (place / "text.txt").write_text(_text(7, 4000), encoding="utf-8")
    return place
