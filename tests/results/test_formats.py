"""Files of version 0.1.0, from before runs and stores had checksums inside: every later version reads them as before.

``fixtures/`` holds a corpus, two runs trained on it, a store dumped from each, and what ``rank`` and ``kld`` said.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from softmax_bottleneck import dump, kld, rank
from softmax_bottleneck.cli.doctor import check
from softmax_bottleneck.errors import StoreError
from softmax_bottleneck.language_models.checkpoint import load
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.training.config import OptimizerConfig
from softmax_bottleneck.training.optimizer import build
from softmax_bottleneck.training.state import load_state

FIXTURES = Path(__file__).parents[1] / "fixtures"
HEADS = ("softmax", "mos")


@pytest.mark.parametrize("name", [*HEADS, *(f"{head}.zarr" for head in HEADS)])
def test_they_are_whole_and_their_reports_the_same(name: str) -> None:
    assert check(FIXTURES / name).startswith("a complete ")
    said, divergence = (json.loads((FIXTURES / f"{name}.{what}.json").read_text()) for what in ("rank", "kld"))
    options = {} if name.endswith(".zarr") else {"data": str(FIXTURES / "corpus"), "dtype": "float64"}
    found = rank(FIXTURES / name, **options).to_dict()
    for key in ("rank", "rank_centered"):
        assert found[key]["value"] == said[key]["value"]
    for key in ("raw", "centered"):
        assert found["bound"][key] == said["bound"][key]
    assert kld(FIXTURES / name, **options).kld == pytest.approx(divergence["kld"], rel=1e-6)


@pytest.mark.parametrize("head", HEADS)
def test_saved_states_are_read(head: str) -> None:
    model = load(FIXTURES / head).model
    optimizer = build(OptimizerConfig(), model.parameters())
    saved = load_state(FIXTURES / head, model, optimizer)
    assert saved is not None
    assert saved[0].step == 144
    assert len(optimizer.state_dict()["state"]) == len(list(model.parameters()))


def test_a_dump_of_version_0_1_0_is_not_continued(tmp_path: Path) -> None:
    store = shutil.copytree(FIXTURES / "mos.zarr", tmp_path / "mos.zarr")
    source = open_source(FIXTURES / "mos", data=str(FIXTURES / "corpus"))
    source.description["corpus"] = "/tmp/fixtures/corpus"  # where it was when the store was begun
    with pytest.raises(StoreError, match=r"another dump: format '.* store 1', not '.* store 2'; name another place"):
        dump(source, store)
    (store / "manifest.jsonl").write_bytes(b"")
    with pytest.raises(StoreError, match="are missing or damaged"):
        rank(store)


@pytest.mark.parametrize("file", ["manifest.jsonl", "log_probs/c/0/0"])
def test_a_flipped_bit_of_a_store_is_seen_or_harmless(file: str, tmp_path: Path) -> None:
    store = shutil.copytree(FIXTURES / "mos.zarr", tmp_path / "mos.zarr")
    data, expected = (store / file).read_bytes(), [block.log_probs for block in open_source(store).blocks()]
    for at in range(0, len(data), len(data) // 60):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 7
        (store / file).write_bytes(changed)
        with contextlib.suppress(StoreError):
            for block, rows in zip(open_source(store).blocks(), expected, strict=True):
                np.testing.assert_array_equal(block.log_probs, rows)
