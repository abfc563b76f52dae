"""Where results go: through devices, pipes and links, and never over what is read."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from .conftest import Bottleneck


def _tree(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def _prepare() -> None:
    """Put a matrix under several names and a corpus into the working directory."""
    logits = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
    np.save("m.npy", logits - np.log(np.exp(logits).sum(1, keepdims=True)))
    os.link("m.npy", "same.npy")
    Path("link.npy").symlink_to("m.npy")
    np.savez("m.npz", A=logits)
    save_file({"a": logits, "b": logits}, "m.safetensors")
    Path("corpus").mkdir()
    for split in ("train", "valid", "test"):
        Path(f"corpus/{split}.txt").write_text("w1 w2 w3\nw4 w5\n", encoding="utf-8")


RUN = "demo/runs/mos"
KEPT = [
    ["rank", "m.npy", "--json", "demo/../m.npy"],
    ["rank", "m.npy", "--json", "same.npy"],
    ["rank", "m.npy", "--json", "link.npy"],
    ["rank", "m.safetensors:a", "--kind", "matrix", "--json", "m.safetensors"],
    ["rank", RUN, "--json", "blob"],  # a file of the run by another name, as in the hub's cache
    ["rank", RUN, "--json", f"{RUN}/trainer_state/new.json"],
    ["rank", RUN, "--data", "corpus", "--json", "corpus/test.txt"],
    ["argmaxable", "m.npy", "--kind", "matrix", "--json", "m.npy"],
    ["spectrum", "m.npy", RUN, "--out", f"{RUN}/figure.png"],
    ["dump", RUN, "--out", f"{RUN}/store.zarr"],
    ["copy", RUN, "--out", f"{RUN}/small"],
]


@pytest.mark.parametrize("arguments", KEPT, ids=" ".join)
def test_what_is_read_is_not_written(arguments: list[str], world: Path, bottleneck: Bottleneck) -> None:
    _prepare()
    Path("blob").hardlink_to(f"{RUN}/config.json")
    before = _tree(world)
    done = bottleneck(*arguments)
    assert _tree(world) == before
    assert done.exit_code == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: cannot write {arguments[-1]}: it is part of what is read, ")
    assert line.endswith("; name another place")


def test_the_text_of_a_run_is_kept_and_its_folder_is_free(
    world: Path, folder_corpus: Path, bottleneck: Bottleneck
) -> None:
    """A corpus may be the working directory, and only its texts are read."""
    before = _tree(folder_corpus)
    done = bottleneck("rank", RUN, "--json", folder_corpus / "test.txt")
    assert "it is part of what is read" in done.stderr
    assert _tree(folder_corpus) == before
    _prepare()
    for _ in range(2):
        assert bottleneck("eval", RUN, "--data", "corpus", "--json", "corpus/report.json").exit_code == 0


def test_results_go_through_pipes_and_links(world: Path, bottleneck: Bottleneck) -> None:
    _prepare()
    os.mkfifo("pipe")
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(Path("pipe").read_bytes()), daemon=True)
    thread.start()
    Path("there").mkdir()
    Path("figure.png").symlink_to("there/figure.png")
    assert bottleneck("kld", "m.npy", "--json", "pipe").exit_code == 0
    assert stat.S_ISFIFO(Path("pipe").lstat().st_mode)
    thread.join(60)
    assert json.loads(found[0])["contexts"] == 30
    assert bottleneck("spectrum", "m.npy", "--out", "figure.png").exit_code == 0
    assert Path("figure.png").is_symlink()
    assert Path("there/figure.png").read_bytes().startswith(b"\x89PNG")
