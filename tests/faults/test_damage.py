"""Every kind of file that is read, damaged: its command names it in one sentence and changes nothing."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from attacks.damage import (
    NO_JSON,
    REMOVED,
    Damage,
    cut,
    folder_instead,
    loop,
    pipe_instead,
    remove,
    with_value,
    write,
)
from softmax_bottleneck.core.json_file import read_json
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.language_models import checkpoint

FIGURES = "figures {} --results {} --format csv --out drawn"
READERS: dict[str, tuple[str, ...]] = {
    "run": ("rank run", "text"),
    "half": ("train --out half --resume", "text", "config.toml"),
    "config.toml": ("train --config config.toml --out new", "text"),
    "cache": ("rank kn2:text8",),
    "results/softmax.json": ("demo --reports results",),
    "results": (FIGURES.format("spectra", "results"),),
    "more": (FIGURES.format("mos-table-13", "more"),),
    "s.npz": ("spectrum s.npz --out s.png",),
    "hf": ("rank hf --data words.txt --contexts 20", "words.txt"),
    "words.txt": ("rank hf --data words.txt", "hf"),
    "text/train.txt": ("rank kn2:text",),
    "text/test.txt": ("rank run --data text", "run"),
    "text/valid.txt": ("train --config config.toml --out new --set corpus=text", "config.toml"),
}
"""For a file, or all files of a folder, the command that reads it, and what else that needs; others are ranked."""


@pytest.fixture
def refused(refusal: Callable[..., str]) -> Callable[[str, Damage], str]:
    """Damage a file, and return the sentence of the command that reads it."""

    def refused(file: str, change: Damage) -> str:
        top = file.partition("/")[0]
        command, *needs = READERS.get(file, READERS.get(top, (f"rank {top}",)))
        return refusal((top, *needs), file, change, command)

    return refused


JSON = (
    *("run/config.json", "run/vocabulary.json", "run/COMPLETE", "half/config.json"),
    *("store.zarr/zarr.json", "store.zarr/log_probs/zarr.json", "store.zarr/targets/zarr.json"),
    *("plain.zarr/zarr.json", "old.zarr/.zarray", "cache/corpora/text8/corpus.json"),
    *("cache/corpora/text8/vocabulary.json", "results/softmax.json", "results/softmax.npz", "s.npz"),
    *("states/states.json", "hf/config.json", "hf/tokenizer.json", "hf/tokenizer_config.json"),
)


@pytest.mark.parametrize("kind", ["null", "nested 100,000 deep", "a link to itself"])
@pytest.mark.parametrize("file", JSON)
def test_a_command_refuses_a_file_without_json(file: str, kind: str, refused: Callable[..., str]) -> None:
    """One kind of damage for each way to refuse a file: its form, its content, and the file itself."""
    refused(file, NO_JSON[kind])


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


UTF_16: dict[str, Damage] = {"UTF-16": lambda path: path.write_bytes(path.read_text().encode("utf-16"))}
TEXTS: dict[str, Damage] = {
    **UTF_16,
    "NUL bytes": lambda path: path.write_bytes(path.read_bytes()[:50] + b"\0"),
    "Latin-1": write(b"caf\xe9\n"),
    "blanks": write(b"  \n\n \n"),
    "a pipe": pipe_instead,
    "a folder": folder_instead,
    "a link to itself": loop,
    "removed": remove,
}


def header(text: str) -> Damage:
    """Replace the header of a .npy file."""

    def apply(path: Path) -> None:
        data = path.read_bytes()
        (length,) = struct.unpack("<H", data[8:10])
        path.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text.encode() + data[10 + length :])

    return apply


NPY: dict[str, Damage] = {
    "cut in the rows": cut(0.7),
    "a shape of 10^30": header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**30}, 12), }}\n"),
    "a header of code": header("__import__('os').abort()"),
    "a number that is not finite": lambda path: np.save(path, np.full((24, 12), np.nan)),
    "a link to itself": loop,
}


SAFETENSORS: dict[str, Damage] = {
    "cut in the rows": cut(0.7),
    "a header longer than the file": write(struct.pack("<Q", 1 << 60) + b"{}"),
    "no tensor": write(struct.pack("<Q", 2) + b"{}"),
    "rows of zeros": lambda path: save_file({"a": torch.zeros(24, 12)}, path),
}
CHUNKS: dict[str, Damage] = {
    "missing": remove,
    "a folder": folder_instead,
    "noise": write(bytes(range(256))),
}
METADATA: dict[str, Damage] = {
    "chunks of 10^12 rows": with_value("chunk_grid.configuration.chunk_shape", [10**12, 12]),
    "an unknown codec": with_value("codecs", [{"name": "\x1b[31m"}]),
}
SETTINGS: dict[str, list[Any]] = {
    "architectures": ["GPT2LMHeadModel", [5], ["BertForMaskedLM"]], "model_type": [5, "gpt" * 2000, "novel", "bert"],
    "auto_map": [5, {"AutoModelForCausalLM": "code.Model"}], "n_head": [0, "two", 10**30], "n_embd": [-4, 5, 8],
    "n_layer": [10**12, 2], "vocab_size": [-21, "many", 22], "n_positions": [0, 17], "text_config": ["x"],
    "quantization_config": [5, {"quant_method": "nonsense"}], "is_encoder_decoder": ["no"], "dtype": ["float7"],
    "activation_function": ["\x1b[31m"], "transformers_weights": ["elsewhere.safetensors"],
}  # fmt: skip


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    """Change the tensors of a model's file."""

    def apply(path: Path) -> None:
        held = load_file(path)
        change(held)
        save_file(held, path, metadata={"format": "pt"})

    return apply


WTE, LN = "transformer.wte.weight", "transformer.ln_f.weight"
WEIGHTS: dict[str, Damage] = {
    "integers": weights(lambda t: t.update({WTE: t[WTE].to(torch.int32)})),
    "not a number": weights(lambda t: t[WTE].fill_(torch.nan)),
    "infinite": weights(lambda t: t[LN].fill_(torch.inf)),
    "one lost": weights(lambda t: t.pop(LN)),
    "one of another shape": weights(lambda t: t.update({LN: torch.ones(7)})),
    "an output layer of its own, though it is tied": weights(lambda t: t.update({"lm_head.weight": torch.ones(21, 4)})),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "no file": remove,
}
TOKENIZERS: dict[str, Damage] = {
    "negative ids": with_value("model.vocab.w3", -3),
    "ids outside the model": with_value("model.vocab.w3", 5_000),
    "ids beyond 64 bits": with_value("model.vocab.w3", 10**30),
    "texts as ids": with_value("model.vocab.w3", "three"),
    "no words": with_value("model.vocab", {}),
    "one token for all text": with_value("model.vocab", {"<unk>": 0}),
    "no model": with_value("model", REMOVED),
    "an unknown model": with_value("model.type", "\x1b[31mNovel"),
}
RESULTS: dict[str, dict[str, Any]] = {
    "report": {"test_perplexity": np.nan, "report.source": {"path": 5}, "report.certificate": REMOVED,
               "more": reduce(lambda deep, _: [deep], range(200), 0)},
    "cells": {"cells.0.kl": None},
    "concentrations": {"curves.0.ranks": [1]},
    "comparison": {"sources": [{"path": "a"}]},
    "dialog": {"bleu": {"scores": {"BLEU": 5}}},
    "divergence": {"histogram": {"edges": [0.0, 1.0], "counts": [0]}},
    "bench": {"cases.softmax.epoch_seconds": 0},
}  # fmt: skip


def state(change: Callable[[dict[str, torch.Tensor], dict[str, Any]], object]) -> Damage:
    """Change the tensors and the numbers of a state, which keeps a checksum that holds."""

    def apply(file: Path) -> None:
        held, numbers = checkpoint.read_state(file)
        change(held, numbers)
        checkpoint.write_state(file.parents[1], numbers["step"], held, numbers)

    return apply


def tensors_named(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Damage:
    """Change the tensors of a state whose names hold a text."""
    return state(lambda held, numbers: held.update({key: change(held[key]) for key in held if name in key}))


STATES: dict[str, Damage] = {
    "half written": cut(0.5),
    "a link to itself": loop,
    "another file of tensors": lambda path: shutil.copy(path.parents[1] / "model.safetensors", path),
    "a count of 10^30": state(lambda held, numbers: numbers.update(epoch=10**30)),
    "weights of another shape": tensors_named("model.", lambda tensor: tensor[:1].clone()),
    "a random state cut short": tensors_named("random.", lambda tensor: tensor[:9].clone()),
}
CASES: dict[str, tuple[str, Damage]] = {
    f"{file}, {name}"[:60]: (file, change)
    for file, changes in {
        **dict.fromkeys(("words.txt", "text/test.txt", "text/valid.txt"), UTF_16),
        "text/train.txt": TEXTS,
        "m.npy": NPY,
        "m.safetensors": SAFETENSORS,
        **{f"{codec}.zarr/c/0/0": {"cut": cut(0.6)} for codec in ("zstd", "gzip", "blosc", "crc", "sharded")},
        "old.zarr/0.0": {"cut": cut(0.6)},
        "plain.zarr/c/0/0": CHUNKS,
        "plain.zarr/zarr.json": METADATA,
        "hf/config.json": {f"{key} {each!r}": with_value(key, each) for key in SETTINGS for each in SETTINGS[key]},
        "hf/model.safetensors": WEIGHTS,
        "hf/tokenizer.json": TOKENIZERS,
        "half/trainer_state/*": STATES,
        **{
            f"more/{name}.json": {place: with_value(place, value) for place, value in values.items()}
            for name, values in RESULTS.items()
        },
    }.items()
    for name, change in changes.items()
}


@pytest.mark.parametrize("name", CASES)
def test_damage_is_refused(name: str, refused: Callable[..., str], originals: Callable[[str], Path]) -> None:
    file, change = CASES[name]
    if file.endswith("/*"):  # a name that no one knows beforehand
        (original,) = (originals("half") / "trainer_state").iterdir()
        file = file[:-1] + original.name
    sentence = refused(file, change)
    if file.startswith(("half", "more")):
        assert file in sentence
