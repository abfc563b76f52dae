"""Where results go: through devices, pipes and links, and never over what is read."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import rich_click as click
from safetensors.numpy import save_file

from softmax_bottleneck.cli import main
from softmax_bottleneck.cli.paths import Folder, Input, Output, ResultFiles, check_outputs
from softmax_bottleneck.errors import OutputError

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
    np.savez("w.npz", b=logits[0, :6])
    np.save("h.npy", logits[:, :4])
    np.save("w.npy", logits[:6, :4])
    Path("t.jsonl").write_text('{"body": "w1 w2 w3 w4"}\n', encoding="utf-8")
    Path("synthetic/cells").mkdir(parents=True)
    np.save("own w.npy", logits[:6, :4])
    Path("linked").mkdir()
    Path("linked/again").symlink_to("../linked")
    Path("linked/parts").symlink_to("../corpus")
    Path("page.md").symlink_to("demo/reports/mos.json")
    Path("corpus").mkdir()
    for split in ("train", "valid", "test"):
        Path(f"corpus/{split}.txt").write_text("w1 w2 w3\nw4 w5\n", encoding="utf-8")


RUN = "demo/runs/mos"
KEPT = [
    ["rank", "m.npy", "--json", "demo/../m.npy"],
    ["rank", "m.npy", "--json", "link.npy"],
    ["rank", "m.safetensors:a", "--kind", "matrix", "--json", "m.safetensors"],
    ["rank", RUN, "--json", "blob"],  # a file of the run by another name, as in the hub's cache
    ["rank", RUN, "--data", "corpus", "--json", "corpus/test.txt"],
    ["rank", "linked", "--json", "corpus/train.txt"],
    ["kld", "h.npy", "--head", "w.npy", "--bias", "w.npz:b", "--json", "w.npz"],
    ["compare", "m.npy", "x=h.npy --head 'own w.npy'", "--json", "own w.npy"],
    ["compare", "m.npy", "x=h.npy --bias=w.npz:b --head=w.npy", "--json", "w.npz"],
    ["need", "demo/runs/softmax", "--data", "t.jsonl:body", "--json", "t.jsonl"],
    ["compare", "m.npy", "x=file://same.npy", "--json", "link.npy"],
    ["eval", "kn3:corpus", "--json", "corpus/train.txt"],
    ["figures", "--results", "demo/reports", "--gallery", "page.md"],
    ["demo", "--initial", "demo/runs", "--out", "demo"],
    ["train", "--finetune", RUN, "--out", f"{RUN}/more"],
    ["synthetic", "--json", "synthetic/cells/new.json"],
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
    assert line.startswith(f"Error: cannot write {arguments[-1]}")
    assert line.endswith(("; name another place", ": another result goes there; name another file"))


def _commands(group: click.Group) -> Iterator[click.Command]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield from _commands(command) if isinstance(command, click.Group) else (command,)


NAMES = ("{}", "label={}", "{}:body", "label={}:A", "file://{}", "simplecache::file://{}")
PAIRS = [
    (command, read, written)
    for command in _commands(main)
    for read in command.params
    for written in command.params
    if isinstance(read.type, Input) and isinstance(written.type, Output)
]


@pytest.mark.parametrize(
    ("command", "read", "written"), PAIRS, ids=[f"{a.name}-{b.name}-{c.name}" for a, b, c in PAIRS]
)
def test_every_option_that_reads_keeps_its_file(
    command: click.Command, read: click.Parameter, written: click.Parameter, tmp_path: Path
) -> None:
    data, link, same = (tmp_path / f"{name}.npz" for name in ("data", "link", "same"))
    data.touch()
    link.symlink_to(data)
    os.link(data, same)
    results = isinstance(read.type, ResultFiles)
    outputs = (data, link) if isinstance(written.type, Folder) else (data, link, same)
    for name, output in product(("{}",) if results else NAMES, outputs):
        value = name.format(tmp_path if results else data)
        context = click.Context(command)
        context.params = {str(read.name): (value,) if read.nargs == -1 else value, str(written.name): output}
        with pytest.raises(OutputError, match="it is part of what is read"):
            check_outputs(context)


OTHERS = [
    ["rank", "--json", "m.npz", "h.npy", "--kind", "matrix"],  # --json taken for a flag, and a matrix for the SOURCE
    ["kld", "m.npy", "--json", "t.jsonl"],
    ["compare", "m.npy", "m.npy", "--json", "corpus/train.txt"],
    ["presets", "--json", "demo/runs/mos/config.json"],
    ["rank", "m.npy", "--save-spectrum", "m.npz"],
    ["rank", "m.npy", "--save-spectrum", "broken.npz"],
    ["spectrum", "m.npy", "--out", "table.png"],
    ["spectrum", "m.npy", "--out", "photo.png"],
    ["report", "m.npy", "--out", "notes.html"],
    ["report", "m.npy", "--out", "paper.html"],
    ["rank", "m.npy", "--json", "drive.json"],
    ["figures", "spectra", "--results", "demo/reports", "--out", "own", "--format", "csv"],
    ["figures", "spectra", "--results", "demo/reports", "--out", "own", "--format", "png"],
    ["figures", "mos-table-1", "--results", "demo/reports", "--out", "own"],
    ["figures", "--results", "demo/reports", "--gallery", "own.md"],
    ["demo", "--out", "own", "--models", "softmax"],
    ["demo", "--out", "own2", "--models", "softmax"],
]


@pytest.mark.parametrize("arguments", OTHERS, ids=" ".join)
def test_results_replace_results_alone(arguments: list[str], world: Path, bottleneck: Bottleneck) -> None:
    _prepare()
    Path("broken.npz").write_bytes(b"PK")
    Path("table.csv").write_text("name,age\n", encoding="utf-8")
    for name in ("photo.png", "notes.html"):
        Path(name).write_text("mine", encoding="utf-8")
    Path("paper.html").write_text("<p>My notes on the softmax-bottleneck.</p>", encoding="utf-8")
    Path("drive.json").write_text('{"kind": "drive#file"}', encoding="utf-8")
    Path("own2/reports").mkdir(parents=True)
    Path("own").mkdir()
    for name in (
        "own/spectra.csv",
        "own/spectra.png",
        "own/mos-table-1.md",
        "own/cdf.csv",
        "own2/reports/softmax.json",
    ):
        Path(name).write_text("{}", encoding="utf-8")
    before = _tree(world)
    done = bottleneck(*arguments)
    assert (_tree(world), done.exit_code, done.stdout) == (before, 1, "")
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(
        r"Error: cannot write \S+: another file is there, not a .*; name another (file|folder)", line
    ), line


def test_results_replace_their_own_kind(world: Path, bottleneck: Bottleneck) -> None:
    _prepare()
    Path("empty").touch()
    for _ in range(2):
        assert bottleneck("kld", "m.npy", "--json", "empty").exit_code == 0
        assert bottleneck("rank", "m.npy", "--save-spectrum", "s.npz").exit_code == 0
        for picture in ("s.png", "s.pdf", "s.svg"):
            assert bottleneck("spectrum", "m.npy", "--out", picture).exit_code == 0
        assert bottleneck("report", "m.npy", "--out", "page.html").exit_code == 0


def test_trained_layers_do_not_replace_the_layer_that_is_read(bottleneck: Bottleneck, tmp_path: Path) -> None:
    layer = tmp_path / "rank-3.safetensors"
    rows = np.random.default_rng(0).standard_normal((60, 8))
    save_file({"weight": rows[:40]}, layer)
    save_file({"hidden_states": rows}, tmp_path / "states.safetensors")
    before = layer.read_bytes()
    options = ("--head", layer, "--ranks", "3", "--train", "--save")
    done = bottleneck("need", tmp_path / "states.safetensors", *options, tmp_path)
    assert (done.exit_code, layer.read_bytes()) == (1, before)
    assert "it is part of what is read" in done.stderr


PLACES = re.compile(r"FILE|DIR|RUN|PATH|STORE|MODEL|SOURCE|CORPUS|FIGURE|PAGE")
OTHERS = {("report", "reference"), ("figures", "out")}
"""The label of a source, and a folder of figures, which is not read: of all other places a command knows the files."""


def test_every_place_is_read_or_written() -> None:
    unknown = [
        (command.name, parameter.name)
        for command in _commands(main)
        for parameter in command.params
        if isinstance(parameter.type, click.Path)
        or PLACES.search(parameter.metavar or parameter.make_metavar(click.Context(command)))
        if not isinstance(parameter.type, Input | Output)
    ]
    assert set(unknown) == OTHERS


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
