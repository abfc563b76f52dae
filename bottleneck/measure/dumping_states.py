"""Write a model's hidden states and its output layer to a folder, file by file, so that a kill loses at most one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.files import json_bytes, make_folder, sha256_bytes, write_bytes, write_json
from ..core.json_file import json_if_any, parse_json
from ..core.progress import Progress
from ..core.tensor_file import DAMAGE, pack, read
from ..core.version import __version__
from ..errors import OutputError, SourceError, StoreError
from ..heads import Softmax
from ..language_models import ModelOnText, Source
from ..sources.array_files import STATES
from ..sources.hidden_states import IDS, TARGETS
from ..sources.states_folder import ABOUT, FORMAT, HEAD, HIDDEN, KEY, TOKENIZER

FILE_BYTES = 16 << 20
"""Bytes of the hidden states in one file."""
UNFINISHED = "unfinished.json"
"""What `ABOUT` will hold, until everything else is written."""
LEFTOVER = re.compile(r"\.([0-9a-f]{32}\.partial|[0-9a-f]{16}\.part)$")
"""Name of a temporary file that Zarr, or `replacing`, leaves behind when it is killed."""
LONGEST = 40
"""Largest number of characters of a value that an error shows."""
NARROW = torch.bfloat16, torch.float16, torch.float32


def _layer(source: Source) -> tuple[dict[str, Any], dict[str, Tensor | None], Callable[[Tensor], Tensor]]:
    """Return scale and soft cap, W and b, and what makes context vectors of hidden states, of a model's softmax."""
    head = source.head if isinstance(source, ModelOnText) else None
    if isinstance(head, Softmax) and head.contexts is None:
        settings = {"scale": head.scale, "soft_cap": head.soft_cap}
        return settings, {"weight": head.weight, "bias": head.bias}, lambda hidden: hidden
    if isinstance(source, ModelOnText) and source.factor_columns is not None:
        (sample,) = source.hidden([range(1)])
        of_vectors = source.linear(sample)
        assert of_vectors is not None
        tensors = {"weight": of_vectors.weight, "bias": of_vectors.bias}
        return {"scale": 1.0, "soft_cap": None}, tensors, lambda hidden: source.linear(hidden)[0]  # type: ignore[index]
    raise SourceError(
        f"{source.description['path']} does not show hidden states under a softmax: give a model with one, or dump its "
        "log-probabilities"
    )


def _narrowed(tensor: Tensor) -> Tensor:
    """Return numbers in the narrowest type that holds all of them exactly."""
    tensor = tensor.detach().cpu()
    fitting = (tensor.to(kind) for kind in NARROW)
    return next((each for each in fitting if torch.equal(each.to(tensor.dtype), tensor)), tensor)


def states_about(source: Source) -> dict[str, Any]:
    """Return what the folder says of itself; `SourceError` for what does not have hidden states under a softmax."""
    settings, text = _layer(source)[0], source.text
    targets = source.targets if source.targets is not None else np.empty(0)
    return {
        "format": FORMAT,
        "model": str(source.description["path"]),
        "text": " ".join(str(source.description[key]) for key in ("corpus", "split") if source.description.get(key)),
        "dtype": source.description.get("body_dtype", source.dtype),
        "contexts": source.shape[0],
        "norm": None,
        **settings,
        "starts": [0] if text is None else text.beginnings(source.shape[0]).tolist(),
        "bound": asdict(source.bound),
        "source": dict(source.description),
        "identity": {**source.identity, "targets": sha256_bytes(targets.tobytes())},
        "version": __version__,
    }


def refuse_other_files(path: Path, about: Mapping[str, Any], *, states: bool) -> None:
    """Refuse a file, a folder that holds something else than a store or such states, and one with other states."""
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path} is a file; name another place")
    if not path.exists() or all(LEFTOVER.search(file.name) for file in path.iterdir()):
        return
    old = json_if_any(path / ABOUT) or json_if_any(path / UNFINISHED) if states else json_if_any(path / "zarr.json")
    old = old if states or not isinstance(old, dict) else old.get("attributes")
    if not isinstance(old, dict) or old.get("format") != about["format"]:
        what = "hidden states that this writes" if states else "a store"
        raise StoreError(f"{path} is not empty and does not hold {what}; name another place")
    if states:
        refuse_another(path, old, parse_json(json_bytes(about)))


def refuse_another(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse a dump of another model, text or size, with the most telling difference."""
    before, now = map(_telling, (old, new))
    for key in {**before, **now}:
        if before.get(key) != now.get(key):
            values = [repr(each.get(key)) for each in (before, now)]
            what = f"another {key}" if max(map(len, values)) > LONGEST else f"{key} {values[0]}, not {values[1]}"
            raise StoreError(f"{path} holds another dump: {what}; name another place")


def _telling(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells dumps apart, the most telling first; names of one model do not count."""
    source = {key: value for key, value in about.get("source", {}).items() if key not in ("path", "label", "revision")}
    sizes = {key: about.get(key) for key in ("format", "contexts", "vocab")}
    hashes = {f"{key}, by the checksum": value for key, value in about.get("identity", {}).items()}
    return {
        **source,
        **sizes,
        **hashes,
        **{key: about[key] for key in about if key not in ("source", "identity", "model")},
    }


def rows_of_file(source: Source) -> int:
    """Return the number of hidden states in one file."""
    return max(1, FILE_BYTES // (4 * (source.embedding_size or 1)))


@torch.no_grad()
def write_states(source: Source, path: Path, about: Mapping[str, Any], progress: Progress) -> None:
    """Write the files that are missing or damaged, and last of all what the folder says of itself."""
    if not any((path / name).exists() for name in (ABOUT, UNFINISHED)):  # a dump that is killed again and again goes on
        write_json(path / UNFINISHED, about)
    (_, tensors, vectors), text = _layer(source), source.text
    if not _is_whole(path / HEAD):
        own = source.dtype == "float64"  # the type that the layer computes in is that of its weights
        weights = {key: each.detach() if own else _narrowed(each) for key, each in tensors.items() if each is not None}
        write_bytes(path / HEAD, pack(weights, key=KEY))
    tokenizer = text and text.tokenizer and text.tokenizer.json
    if tokenizer and not (path / TOKENIZER).exists():
        write_bytes(path / TOKENIZER, tokenizer.encode())
    known = {TARGETS: source.targets, IDS: text and text.last(source.shape[0])}
    folder, ranges = make_folder(path / HIDDEN), source.ranges(rows_of_file(source))
    files = {folder / f"{number:05}.safetensors": rows for number, rows in enumerate(ranges)}
    missing = {file: rows for file, rows in files.items() if not _is_whole(file)}
    with progress.bar(f"dumping {path.name}", source.shape[0], "contexts") as bar:
        bar.advance(source.shape[0] - sum(map(len, missing.values())))
        assert isinstance(source, ModelOnText)
        for (file, rows), hidden in zip(missing.items(), source.hidden(missing.values()), strict=True):
            some = {name: torch.from_numpy(each[rows.start : rows.stop].copy()) for name, each in known.items()
                    if each is not None}  # fmt: skip
            write_bytes(file, pack({STATES: _narrowed(vectors(hidden)), **some}, key=KEY))
            bar.advance(len(rows))
    write_json(path / ABOUT, about)
    (path / UNFINISHED).unlink(missing_ok=True)


def _is_whole(file: Path) -> bool:
    """Return whether a file is there and undamaged."""
    with suppress(*DAMAGE):
        return bool(read(file, key=KEY))
    return False
