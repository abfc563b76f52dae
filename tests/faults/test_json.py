"""Damaged JSON, in every file that the tool wrote or that comes from Hugging Face."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from attacks import promise
from attacks.damage import NO_JSON

HF = "rank hf --data words.txt --contexts 20"
READERS = {
    "run/config.json": "rank run",
    "run/vocabulary.json": "rank run",
    "run/COMPLETE": "rank run",
    "half/config.json": "train --out half --resume",
    "config.json": "train --config config.json --out new",
    "store.zarr/zarr.json": "rank store.zarr",
    "store.zarr/log_probs/zarr.json": "rank store.zarr",
    "store.zarr/targets/zarr.json": "rank store.zarr",
    "plain.zarr/zarr.json": "rank plain.zarr",
    "old.zarr/.zarray": "rank old.zarr",
    "cache/corpora/text8/corpus.json": "rank kn2:text8",
    "cache/corpora/text8/vocabulary.json": "rank kn2:text8",
    "results/softmax.json": "demo --reports results",
    "results/softmax.npz": "figures spectra --results results --format csv --out drawn",
    "s.npz": "spectrum s.npz --out s.png",
    "hf/config.json": HF,
    "hf/tokenizer.json": HF,
    "hf/tokenizer_config.json": HF,
}
NEEDED = {"rank run": ["text"], "train": ["text", "config.json"], HF: ["words.txt"]}


def _needs(file: str, command: str) -> list[str]:
    parts = [
        file.partition("/")[0],
        *(name for key, names in NEEDED.items() if command.startswith(key) for name in names),
    ]
    return list(dict.fromkeys(parts))


HARMLESS = {
    ("config.json", "an empty object"),  # the default settings, which train for minutes
    ("results/softmax.json", "removed"),
    ("results/softmax.npz", "removed"),
    ("hf/tokenizer_config.json", "removed"),
    *(("hf/tokenizer_config.json", kind) for kind in ("an empty object", "terminal escapes", "not a number")),
    *(
        (f"{name}.json", "UTF-16")
        for name in ("store.zarr/zarr", "store.zarr/log_probs/zarr", "store.zarr/targets/zarr")
    ),
    ("old.zarr/.zarray", "UTF-16"),  # Zarr reads these
    *((name, "UTF-16") for name in ("results/softmax.npz", "s.npz")),  # no text
}


@pytest.mark.parametrize("kind", NO_JSON)
@pytest.mark.parametrize("file", READERS)
def test_no_json(file: str, kind: str, place: Callable[..., Path]) -> None:
    if (file, kind) in HARMLESS:
        return
    folder = place(*_needs(file, READERS[file]))
    NO_JSON[kind](folder / file)
    before = promise.snapshot(folder)
    done = promise.run(READERS[file].split())
    promise.check(done)
    promise.check_kept(before, folder)
