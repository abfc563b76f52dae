"""Damaged JSON, in every file that the tool wrote or that comes from Hugging Face."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from attacks import promise
from attacks.damage import NO_JSON
from softmax_bottleneck.core.json_file import read_json
from softmax_bottleneck.errors import ConfigurationError

HF = "rank hf --data words.txt --contexts 20"
READERS = {
    "run/config.json": ("rank run", "text"),
    "run/vocabulary.json": ("rank run", "text"),
    "run/COMPLETE": ("rank run", "text"),
    "half/config.json": ("train --out half --resume", "text", "config.json"),
    "config.json": ("train --config config.json --out new", "text"),
    "store.zarr/zarr.json": ("rank store.zarr",),
    "store.zarr/log_probs/zarr.json": ("rank store.zarr",),
    "store.zarr/targets/zarr.json": ("rank store.zarr",),
    "plain.zarr/zarr.json": ("rank plain.zarr",),
    "old.zarr/.zarray": ("rank old.zarr",),
    "cache/corpora/text8/corpus.json": ("rank kn2:text8",),
    "cache/corpora/text8/vocabulary.json": ("rank kn2:text8",),
    "results/softmax.json": ("demo --reports results",),
    "results/softmax.npz": ("figures spectra --results results --format csv --out drawn",),
    "s.npz": ("spectrum s.npz --out s.png",),
    "hf/config.json": (HF, "words.txt"),
    "hf/tokenizer.json": (HF, "words.txt"),
    "hf/tokenizer_config.json": (HF, "words.txt"),
}
"""For each file the command that reads it, and what else the command needs."""
KINDS = ("null", "nested 100,000 deep", "a link to itself")
"""One kind of damage for each way to refuse a file: its form, its content, and the file itself."""


@pytest.mark.parametrize("file", READERS)
def test_a_command_refuses_a_file_without_json(file: str, place: Callable[..., Path]) -> None:
    command, *needs = READERS[file]
    folder = place(file.partition("/")[0], *needs)
    for kind in KINDS:
        NO_JSON[kind](folder / file)
        before = promise.snapshot(folder)
        promise.check(promise.run(command.split()))
        promise.check_kept(before, folder)


@dataclass
class Sizes:
    """What the file must hold."""

    format: list[int]


@pytest.mark.parametrize("kind", NO_JSON)
def test_a_file_without_an_object_is_refused_in_one_sentence(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"format": [1, 2]}')
    assert read_json(file, Sizes, error=ConfigurationError, remedy="write it again") == {"format": [1, 2]}
    NO_JSON[kind](file)
    with pytest.raises(ConfigurationError, match=r"a\.json.*; write it again$") as caught:
        read_json(file, Sizes, error=ConfigurationError, remedy="write it again")
    assert len(str(caught.value)) < 300 + len(str(file))
