"""Random damage to every kind of file that is read: the right numbers, or an error of our own."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softmax_bottleneck import corpora
from softmax_bottleneck.core import tensor_file
from softmax_bottleneck.core.tensor_file import digest
from softmax_bottleneck.corpora.ids import read_ids
from softmax_bottleneck.errors import BottleneckError
from softmax_bottleneck.figures.results import read as read_results
from softmax_bottleneck.hugging_face.folder import read_config, stored_tensors, weight_files
from softmax_bottleneck.hugging_face.tokenizer import read_tokenizer
from softmax_bottleneck.language_models import checkpoint
from softmax_bottleneck.sources import open_matrix
from softmax_bottleneck.sources.states_folder import open_folder
from softmax_bottleneck.sources.store import open_zarr
from softmax_bottleneck.spectrum import load_spectra
from softmax_bottleneck.training import read as read_training
from softmax_bottleneck.training.fit import result

Reader = Callable[[Path], Any]


def _rows(open_source: Callable[[str], Any]) -> Reader:
    return lambda path: [block.log_probs.tolist() for block in open_source(str(path)).blocks()]


def _run(path: Path) -> Any:
    run = checkpoint.load(path)
    return run.config, run.vocabulary, digest(run.model.state_dict())


SEALED: dict[str, tuple[str, str, Reader]] = {
    **{name: ("run", name, _run) for name in ("COMPLETE", "config.json", "vocabulary.json", "model.safetensors")},
    "metrics.jsonl": ("run", "metrics.jsonl", _run),
    "store's rows": ("store.zarr", "log_probs/c/0/0", _rows(open_zarr)),
    "states": ("states", "hidden/00000.safetensors", _rows(open_folder)),
    "states' layer": ("states", "head.safetensors", _rows(open_folder)),
    "spectrum": ("s.npz", "", lambda path: load_spectra(path)[0].spectrum.values.tolist()),
    "ids": ("cache/corpora/text8", "train.ids", lambda path: read_ids(path).split("train").tolist()),
}
"""Files with a checksum: a reader gives what it gave before the damage, or refuses."""
OPEN: dict[str, tuple[str, str, Reader]] = {
    "configuration": ("config.toml", "", read_training),
    "times": ("run", "timing.jsonl", result),
    "store": ("store.zarr", "zarr.json", _rows(open_zarr)),
    "store's array": ("store.zarr", "log_probs/zarr.json", _rows(open_zarr)),
    "folder of states": ("states", "states.json", _rows(open_folder)),
    "Zarr array": ("plain.zarr", "zarr.json", _rows(open_zarr)),
    "Zarr chunk": ("zstd.zarr", "c/0/0", _rows(open_zarr)),
    "old Zarr array": ("old.zarr", ".zarray", _rows(open_zarr)),
    ".npy": ("m.npy", "", _rows(open_matrix)),
    ".safetensors": ("m.safetensors", "", _rows(open_matrix)),
    "words": ("cache/corpora/text8", "vocabulary.json", read_ids),
    "text": ("text", "train.txt", corpora.load),
    "results": ("results", "mos.json", read_results),
    "model": ("hf", "config.json", read_config),
    "model's weights": ("hf", "model.safetensors", lambda path: list(stored_tensors(weight_files(path)))),
    "tokenizer": ("hf", "tokenizer.json", read_tokenizer),
}
"""Files without one, which may hold other numbers: a reader reads them, or refuses with a sentence of its own."""


def _read(read: Reader, path: Path) -> Any:
    """Return what a reader gives, or ``None`` where it refuses in words of its own."""
    try:
        return read(path)
    except BottleneckError as error:
        sentence = str(error)
    assert not re.search(r"pydantic|\[type=", sentence)
    return None


EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=6)), min_size=1, max_size=4)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def damaged(data: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    """Replace, insert, cut out or cut off bytes."""
    for share, kind, new in edits:
        at = int(share * len(data))
        data = [
            data[:at] + new + data[at + len(new) :],
            data[:at] + new + data[at:],
            data[:at] + data[at + 1 + len(new) :],
            data[:at],
        ][kind]
    return data


@pytest.mark.parametrize("name", [*SEALED, *OPEN])
def test_damaged_bytes_and_other_values(name: str, place: Callable[..., Path]) -> None:
    """A file that is JSON also with another value under one of its keys."""
    top, inside, read = (SEALED | OPEN)[name]
    folder = place(*dict.fromkeys((top.partition("/")[0], "text")))
    file = folder / top / inside if inside else folder / top
    original, expected = file.read_bytes(), read(folder / top)
    content = json.loads(original) if name in OPEN and inside.endswith(".json") else {}
    keys = list(content) if isinstance(content, dict) else list(range(min(len(content), 3)))

    @settings(max_examples=25, deadline=None, database=None)
    @given(edits=EDITS)
    def attack(edits: list[tuple[float, int, bytes]]) -> None:
        file.write_bytes(damaged(original, edits))
        found = _read(read, folder / top)
        assert found is None or name in OPEN or found == expected

    @settings(max_examples=25, deadline=None, database=None)
    @given(key=st.sampled_from(keys or [""]), value=VALUES)
    def replace(key: Any, value: Any) -> None:
        changed = copy.copy(content)
        changed[key] = value
        file.write_text(json.dumps(changed))
        _read(read, folder / top)

    attack()
    if content:
        replace()


@settings(max_examples=100, deadline=None, database=None)
@given(edits=EDITS)
def test_a_state_is_read_or_refused(edits: list[tuple[float, int, bytes]], tmp_path_factory: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "state.safetensors"
    file.write_bytes(damaged(tensor_file.pack({"a": torch.arange(6.0)}, key="state", about={"step": 3}), edits))
    with suppress(*tensor_file.DAMAGE):
        tensors, about = tensor_file.read(file, key="state")
        assert about is None or (torch.equal(tensors["a"], torch.arange(6.0)) and about["step"] == 3)


@pytest.mark.parametrize("name", ["states", "states' layer"])
def test_a_file_of_ours_does_not_lose_its_checksum(name: str, place: Callable[..., Path]) -> None:
    """Other programs write files without one, beside a description that is not ours."""
    top, inside, read = SEALED[name]
    folder = place(top, "text") / top
    data = (folder / inside).read_bytes()
    assert data.count(b"softmax-bottleneck") == 1
    (folder / inside).write_bytes(data.replace(b"softmax-bottleneck", b"softmax bottleneck"))
    assert _read(read, folder) is None
    about = json.loads((folder / "states.json").read_text())
    del about["identity"]
    (folder / "states.json").write_text(json.dumps(about))
    assert _read(read, folder) is not None
