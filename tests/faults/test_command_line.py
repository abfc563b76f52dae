"""Whatever the command line and the environment are, the promise holds."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attacks import promise
from softmax_bottleneck.cli import COMMANDS
from softmax_bottleneck.core.parallel import SECONDS_VARIABLE

MANY = "9" * 5000
NAME = "x" * 300
ARGUMENTS: dict[str, list[tuple[str, ...]]] = {
    "unknown options": [(command, "--nonsense") for command in COMMANDS],
    "names of sources": [
        *((command, NAME) for command in ("rank", "kld", "dump", "eval", "compare", "gradient", "doctor", "copy")),
        *(("rank", name) for name in ("", " ", ".", "/", "..", "\x1b[2J", "a\nb", "$\\frac$", "http://", "a::b",
                                      "\udcff.npy", f"{NAME}.npy", "no\x9bsuch.npy")),
        *(("eval", name) for name in ("text", "m.npy", "kn0:x", "kn3:", "kn99999999999999999999:x", "kn3:\x1b")),
        *(("copy", "--out", "small", name) for name in ("text", "m.npy", "nothing")),
    ],
    "numbers": [
        *(("rank", "m.npy", option, value)
          for option in ("--contexts", "--max-memory", "--eps", "--extended") for value in (MANY, "-1", "1e400", "٣x")),
        *(("rank", "m.npy", "--max-memory", value) for value in ("1", "9" * 400 + "GiB", "8EiB")),
        *(("kld", "m.npy", "--pairs", value) for value in (MANY, "0", "some", "1e30")),
        *(("synthetic", "--contexts", "10", option, value)
          for option in ("--vocab", "--dim", "--seeds", "--alpha") for value in ("0", MANY, MANY[:30], "x", "1e400")),
        ("report", "m.npy", "--out", "p.html", "--pairs", MANY[:30]),
        ("demo", "--seeds", MANY), ("bench", "spectrum", "--shape", f"{MANY}x5"),
    ],
    "files to write": [
        *(("rank", "m.npy", option, f"no/such/folder/{NAME}") for option in ("--json", "--save-spectrum")),
        *(("rank", "m.npy", "--json", name) for name in ("m.npy", ".", NAME, "\udcff/x")),
        *(("dump", "m.npy", "--out", name) for name in ("m.npy", "text", NAME, "text/train.txt/x.zarr")),
        *(("spectrum", "m.npy", "--out", name) for name in ("m.npy", f"{NAME}.png", "no/x.png")),
        ("presets", "--json", "m.npy/x"),
    ],
    "settings of a training": [
        *(("train", "--out", "new", "--set", value)
          for value in ("", "=", "a.b=1", "seed=-1", f"seed={MANY}", "seed=1e400", "corpus=none", "head.name=sofmax",
                        "training.batch_size=" + "9" * 30, "training=5", "head.name=[", "corpus=\x1b[31m", "model={}x",
                        "training.optimizer.learning_rate=NaN", "[" * 5000 + "=1")),
        *(("train", "--preset", value, "--out", "new") for value in ("", "nonsense", NAME)),
        *(("train", "--config", "config.toml", "--out", "new", "--set", f"{key}={MANY[:30]}")
          for key in ("model.backbone.hidden_size", "model.head.embedding_size")),
    ],
    "corpora": [
        *(("data", "get", name) for name in ("", "nonsense", NAME, "../x", "python-docs")),
        *(("data", "get", "ptb", "--url", url)
          for url in ("", "file:///etc/passwd", "http://", "http://a b/", "http://127.0.0.1:99999/", "http://[::1",
                      "http://127.0.0.1:1/\r\nHost: x", "ftp://x/y", "http://\udcff/")),
        *(("data", "get", "ptb", "--from", name) for name in ("nothing", "m.npy", NAME, "\udcff")),
    ],
    "names": [
        (), ("--nonsense",), ("\udcff",), ("figures", "nonsense", "--results", "text", "--out", "drawn"),
        ("demo", "--family", "nonsense"), ("synthetic", "--models", ",,"), ("bench", "heads", "--only", "nonsense"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_arguments_that_are_wrong(kind: str, place: Callable[..., Path]) -> None:
    folder = place("m.npy", "text")
    before = promise.snapshot(folder)
    for arguments in ARGUMENTS[kind]:
        promise.check(promise.run(arguments), codes=(1, 2))
    promise.check_kept(before, folder)


ALONE = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "a free one"}
ENVIRONMENT: list[tuple[dict[str, str], int, str]] = [
    ({"MPLBACKEND": "nonsense"}, 0, ""),
    ({"SOFTMAX_BOTTLENECK_CACHE": "m.npy/below"}, 0, ""),
    ({"SOFTMAX_BOTTLENECK_CACHE": "\udcff"}, 0, ""),
    ({"HOME": "", "TERM": "\x1b", "COLUMNS": "x"}, 0, ""),
    ({"WORLD_SIZE": "abc"}, 1, "WORLD_SIZE"),
    ({"WORLD_SIZE": "9" * 400}, 1, "WORLD_SIZE"),
    ({"WORLD_SIZE": "2"}, 1, ""),  # without the address of the others
    ({"RANK": "x"}, 1, "RANK"),
    *(({"RANK": rank, SECONDS_VARIABLE: "soon", **ALONE}, 1, "whole number of seconds") for rank in "01"),
    *(({"RANK": rank, SECONDS_VARIABLE: "1", **ALONE}, 1, "cannot be joined") for rank in "01"),
]


@pytest.mark.parametrize(("variables", "code", "said"), ENVIRONMENT, ids=lambda value: ascii(value)[:40])
def test_an_environment_that_is_wrong(
    variables: dict[str, str], code: int, said: str, place: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place("m.npy")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    for name, value in variables.items():
        monkeypatch.setenv(name, port if name == "MASTER_PORT" else value)
    before = promise.snapshot(folder)
    assert said in promise.check(promise.run(["rank", "m.npy"]), codes=(code,))
    promise.check_kept(before, folder)


NAMES = ["\x1b[31mred$\\frac$ a\nb\udcff_σ %s%n{0}", "-m"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_that_are_odd(name: str, place: Callable[..., Path]) -> None:
    """They are read, never printed raw, and kept as they are."""
    folder = place("m.npy", "s.npz")
    (folder / "m.npy").rename(folder / f"{name}.npy")
    (folder / "s.npz").rename(folder / f"{name}.npz")
    before = promise.snapshot(folder)
    for arguments in (
        ["rank", f"./{name}.npy", "--json", f"./{name}.json"],
        ["rank", f"./{name}.npy", "--json", "-"],
        ["spectrum", f"./{name}.npz", "--out", f"./{name}.png"],
        ["report", f"./{name}.npz", "--out", f"./{name}.html"],
        ["dump", f"./{name}.npy", "--out", f"./{name}.zarr"],
        ["doctor", f"./{name}.zarr"],
    ):
        promise.check(promise.run(arguments), codes=(0,))
    promise.check_kept(before, folder)


@contextmanager
def as_an_ordinary_user() -> Iterator[None]:
    """Root reads everything: what it runs here has the rights of nobody."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_what_is_unreadable_is_said_to_be(place: Callable[..., Path]) -> None:
    folder = place("run", "text", "m.npy")
    commands = (["rank", "run"], ["rank", "m.npy"])
    for arguments in commands:  # this also loads every module, from folders that may be root's alone
        assert promise.run(arguments).code == 0
    for path in folder.rglob("*"):
        path.chmod(0o755)
    for path in (folder / "run" / "config.json", folder / "m.npy"):
        path.chmod(0)
    folder.chmod(0o755)
    with as_an_ordinary_user():
        done = [promise.run(arguments) for arguments in commands]
    for each, name in zip(done, ("config.json", "m.npy"), strict=True):
        sentence = promise.check(each)
        assert "Permission denied" in sentence
        assert name in sentence
