"""A small world of everything that the tool reads: a run, stores, matrices, a model's folder, corpora, results."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from attacks import promise
from attacks.damage import Damage
from softmax_bottleneck import corpora, rank
from softmax_bottleneck.corpora.ids import write_ids
from softmax_bottleneck.hugging_face.loading import quiet
from softmax_bottleneck.measure.dumping import dump
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.spectrum import write_spectra
from softmax_bottleneck.training import as_toml, fit
from softmax_bottleneck.training.config import parse

TOKENS, T, M = 20, 24, 12
CODECS = ("plain", "zstd", "gzip", "blosc", "crc", "sharded", "old")
RESULTS = Path(__file__).parents[2] / "figures" / "results"


def _text(world: Path) -> None:
    folder = world / "text"
    words = np.random.default_rng(1).integers(0, TOKENS, 900)
    folder.mkdir()
    for split, part in (("train", words[:600]), ("valid", words[600:680]), ("test", words[680:760])):
        rows = part.reshape(-1, 10)
        (folder / f"{split}.txt").write_text("".join(" ".join(f"w{word}" for word in row) + "\n" for row in rows))
    (world / "words.txt").write_text(" ".join(f"w{word}" for word in words[:120]))


def _runs(world: Path) -> None:
    """Train a run, and leave a copy of it unfinished."""
    settings: dict[str, Any] = {
        "corpus": str(world / "text"),
        "model": {"backbone": {"name": "lstm", "embedding_size": 4, "hidden_size": 5, "layers": 1}},
        "training": {"epochs": 1, "batch_size": 4, "bptt": 12},
    }
    (world / "config.toml").write_text(as_toml(settings))
    fit(parse(settings, where="test"), world / "run", device="cpu")
    shutil.copytree(world / "run", world / "half")
    (world / "half" / "COMPLETE").unlink()
    rows = (world / "half" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (world / "half" / "metrics.jsonl").write_text("".join(rows[:-1]))


def _matrices(world: Path) -> None:
    logits = np.random.default_rng(0).standard_normal((T, M))
    matrix = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    np.save(world / "m.npy", matrix)
    save_file({"a": torch.from_numpy(matrix)}, world / "m.safetensors")
    codecs: dict[str, Any] = {
        "plain": {"compressors": None},
        "zstd": {"compressors": zarr.codecs.ZstdCodec()},
        "gzip": {"compressors": zarr.codecs.GzipCodec()},
        "blosc": {"compressors": zarr.codecs.BloscCodec()},
        "crc": {"compressors": zarr.codecs.Crc32cCodec()},
        "sharded": {"shards": (T // 2, M), "compressors": None},
    }
    for name, options in codecs.items():
        array = zarr.create_array(world / f"{name}.zarr", shape=(T, M), chunks=(T // 4, M), dtype="f8", **options)
        array[:] = matrix
    old = zarr.create_array(world / "old.zarr", shape=(T, M), chunks=(T // 4, M), dtype="f8", zarr_format=2)
    old[:] = matrix
    report = rank(matrix)
    write_spectra(world / "s.npz", [report.saved_spectrum])


def _hugging_face(world: Path) -> None:
    vocabulary = {f"w{number}": number for number in range(TOKENS)} | {"<unk>": TOKENS}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    with quiet() as transformers, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = {"vocab_size": TOKENS + 1, "n_embd": 4, "n_layer": 1, "n_head": 2, "n_positions": 16}
        transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).save_pretrained(world / "hf")
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(
            world / "hf"
        )


def _ids(world: Path) -> None:
    corpus = corpora.load(world / "text")
    pieces = {split: [corpus.split(split)] for split in corpora.SPLITS}
    write_ids(world / "cache" / "corpora" / "text8", corpus.vocabulary, pieces, sha256=corpus.sha256)


def _store(world: Path) -> None:
    dump(open_source(world / "run"), world / "store.zarr")


def _states(world: Path) -> None:
    dump(open_source(world / "run"), world / "states", states=True)


def _results(world: Path) -> None:
    shutil.copytree(RESULTS / "demo", world / "results", ignore=shutil.ignore_patterns("lms*", "*against*"))


def _more_results(world: Path) -> None:
    """Keep one file of every kind, those of ranks with their spectra."""
    folder = world / "more"
    folder.mkdir()
    for name, file in {
        "report.json": "demo/lms-plif.json", "report.npz": "demo/lms-plif.npz", "rank.npz": "demo/mos.npz",
        "mos.epoch-1.json": "ptb-fast/mos.epoch-1.json", "comparison.json": "demo/mos.against-moc.json",
        "score.json": "ptb/kn5.json", "dialog.json": "switchboard-small/mos.json", "bench.json": "bench/training.json",
        "heads.json": "bench/heads.json", "profile.json": "bench/synthetic-profile.json",
        "concentrations.json": "synthetic/concentrations.json",
    }.items():  # fmt: skip
        shutil.copy(RESULTS / file, folder / name)
    report = json.loads((RESULTS / "demo" / "mos.json").read_text())["report"]
    report["eps"] |= {"distinct": [20, 12], "noise": {"deviation": 0.01, "is_coarse": True}}
    report["kind"] = "rank"
    (folder / "rank.json").write_text(json.dumps(report))
    (folder / "several.json").write_text(json.dumps({"kind": "results", "results": [report]}))
    cells = json.loads((RESULTS / "synthetic" / "alpha-1-M100.json").read_text())
    (folder / "cells.json").write_text(json.dumps({**cells, "cells": cells["cells"][:4]}))
    shutil.copy(next((RESULTS / "transformer-study").glob("*-mos-2-*.json")), folder / "study.json")
    shutil.copy(RESULTS / "frozen-body" / "softmax-0.0001-seed0.json", folder / "frozen.json")
    histogram = {"edges": [0.0, 1.0, 2.0], "counts": [3, 4]}
    divergence = {
        "kind": "kld",
        "source": report["source"], "contexts": 9, "vocab": 5, "pairs": 7, "kld": 1.0, "histogram": histogram,
        "roundoff": 1e-6, "largest_log_sum": None, "eps": {"value": 1e-7, "dtype": "float32", "assumed": False},
    }  # fmt: skip
    (folder / "divergence.json").write_text(json.dumps(divergence))


MAKERS: Mapping[Callable[[Path], None], tuple[str, ...]] = {
    _text: ("text", "words.txt"),
    _runs: ("run", "half", "config.toml"),
    _store: ("store.zarr",),
    _states: ("states",),
    _matrices: ("m.npy", "m.safetensors", "s.npz", *(f"{codec}.zarr" for codec in CODECS)),
    _hugging_face: ("hf",),
    _ids: ("cache",),
    _results: ("results",),
    _more_results: ("more",),
}
"""What makes each part of the world."""
NEEDS = {_runs: (_text,), _store: (_text, _runs), _states: (_text, _runs), _ids: (_text,)}


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a part of the world, undamaged and read only, which is made when it is first asked for."""
    world = tmp_path_factory.mktemp("world") / "world"
    world.mkdir()

    def original(name: str) -> Path:
        maker = next(maker for maker, names in MAKERS.items() if name in names)
        for each in (*NEEDS.get(maker, ()), maker):
            if not (world / MAKERS[each][0]).exists():
                each(world)
        return world / name

    return original


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no name be looked for on the Hugging Face hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def place(
    tmp_path: Path, originals: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Path]]:
    """Copy parts of the world into a fresh working directory, with an own cache, and return the directory."""
    folder = tmp_path / "w"

    def place(*names: str) -> Path:
        folder.mkdir(exist_ok=True)
        for name in names:
            original = originals(name)
            if original.is_dir():
                shutil.copytree(original, folder / name, symlinks=True)
            else:
                shutil.copy(original, folder / name)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("SOFTMAX_BOTTLENECK_CACHE", str(folder / "cache"))
        return folder

    yield place
    for path in (folder, *folder.rglob("*")):  # what an attack made unreadable
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


@pytest.fixture
def refusal(place: Callable[..., Path]) -> Callable[..., str]:
    """Damage a part of the world, run a command that reads it, and return its sentence; nothing else may change."""

    def refusal(names: Sequence[str], file: str, change: Damage, command: str) -> str:
        folder = place(*names)
        change(folder / file)
        before = promise.snapshot(folder)
        sentence = promise.check(promise.run(command.split()))
        promise.check_kept(before, folder)
        return sentence

    return refusal
