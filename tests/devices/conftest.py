"""The pretended accelerator, which torch sees only while a test of this folder runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from softmax_bottleneck.core import devices

try:
    import accelerator
except ImportError:  # torch before 2.10
    collect_ignore_glob = ["test_*"]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch, repeatable: None) -> Iterator[str]:
    """Its name. As on a GPU, a module keeps its parameters when it is moved, so that tied ones stay tied."""
    monkeypatch.setattr(accelerator.MODULE, "available", True)
    monkeypatch.setattr(torch, "Generator", accelerator.Generator)
    torch.__future__.set_swap_module_params_on_conversion(True)
    devices._adds_in_float64.cache_clear()
    yield accelerator.NAME
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.fixture
def no_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes in float32 and narrower types alone, as Apple's GPUs do."""
    monkeypatch.setattr(accelerator.MODULE, "float64", False)


@pytest.fixture(scope="session")
def short_corpus(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A third of the lines and fewer: every operation on the device is one in Python."""
    folder = tmp_path_factory.mktemp("short")
    for split, lines in (("train", 24), ("valid", 3), ("test", 6)):
        text = (corpus_folder / f"{split}.txt").read_text().splitlines(keepends=True)
        (folder / f"{split}.txt").write_text("".join(text[:lines]))
    return folder
