"""What other files and processes are there stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from attacks import promise
from softmax_bottleneck.core.files import only_process


def test_two_dumps_into_one_store(place: Callable[..., Path]) -> None:
    folder = place("m.npy", "s.npz")
    for _ in range(2):  # a figure replaces its own numbers
        assert promise.run(["spectrum", "s.npz", "--out", "fig.png"]).code == 0
    assert (folder / "fig.csv").read_text().startswith("model,part,index,sigma,")
    (folder / "new.zarr").mkdir()
    with only_process(folder / "new.zarr") as alone:
        assert alone
        sentence = promise.check(promise.run(["dump", "m.npy", "--out", "new.zarr"]))
    assert sentence.startswith("another process is dumping into new.zarr: ")
    assert promise.run(["dump", "m.npy", "--out", "new.zarr"]).code == 0


@pytest.mark.parametrize(
    ("line", "kept", "code"),
    [
        ("copy run --out small", ".small.part/thesis.txt", 0),
        ("dump run --out store.zarr", "store.zarr/notes.partial", 0),
        ("dump m.npy --out new.zarr", "new.zarr/notes.partial", 1),
        ("dump m.npy --out new.zarr", "new.zarr/.mine.part", 1),
        ("dump m.npy --out new.zarr", "new.zarr/zarr.json", 1),
        ("spectrum s.npz --out fig.png", "fig.csv", 1),
        ("train --config config.toml --out new", "new/.mine.part", 1),
    ],
)
def test_files_of_others(line: str, kept: str, code: int, place: Callable[..., Path]) -> None:
    folder = place("m.npy", "s.npz", "run", "text", "config.toml", "store.zarr")
    (folder / kept).parent.mkdir(exist_ok=True)
    (folder / kept).write_text("the only copy")
    before = promise.snapshot(folder)
    promise.check(promise.run(line.split()), codes=(code,))
    promise.check_kept(before, folder)


def test_tokens_are_not_printed_raw(place: Callable[..., Path]) -> None:
    folder = place("text", "config.toml")
    for split in ("train", "valid", "test"):
        file = folder / "text" / f"{split}.txt"
        file.write_text(file.read_text().replace("w1 ", "\x1b[31mw1 ").replace("w2 ", "w\x9b2 "))
    training = ["train", "--config", "config.toml", "--set", "corpus=text", "--out"]
    for name in ("a", "b"):
        assert promise.run([*training, name, "--set", f"seed={len(name) + ord(name)}"]).code == 0
    promise.check(promise.run(["compare", "a", "b"]), codes=(0,))
    promise.check(promise.run(["compare", "a", "b", "--json", "-"]), codes=(0,))
