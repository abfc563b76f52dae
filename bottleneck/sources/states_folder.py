"""A folder of hidden states with the output layer that belongs to them; docs/states.md has its form.

It is a model on a text, as hidden states in single files are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal, NotRequired

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import TypedDict

from ..core.json_file import Count, Magnitude, Size, read_json
from ..core.tensor_file import DAMAGE, read
from ..corpora.batches import whole_numbers
from ..errors import SourceError, first_line, meant
from ..heads import RankBound
from ..hugging_face.tokenizer import read_tokenizer
from ..language_models import ModelOnText
from ..language_models.states import GivenStates
from ..results.base import by_numbers
from .array_files import STATES
from .hidden_states import IDS, TARGETS, TWICE, doubted, floats, is_normed, layer_of, norm_of, softmax_of, states_of

FORMAT = "softmax-bottleneck states 1"
ABOUT, HEAD, HIDDEN, TOKENIZER = "states.json", "head.safetensors", "hidden", "tokenizer.json"
"""Files of the folder, and the folder of the states in it."""
NORM = "norm.weight", "norm.bias"
KEY = "softmax-bottleneck"
"""The key of the checksum that a file of ours has."""
AGAIN = "run what wrote this folder again: the file is written last"


class _About(TypedDict):
    """What the folder says of itself."""

    format: Literal["softmax-bottleneck states 1"]
    contexts: Size
    starts: NotRequired[list[Count]]
    norm: NotRequired[Literal["rms", "layer"] | None]
    norm_eps: NotRequired[Magnitude | None]
    scale: NotRequired[float]
    soft_cap: NotRequired[float | None]
    model: NotRequired[str | None]
    text: NotRequired[str | None]
    source: NotRequired[dict[str, Any]]
    identity: NotRequired[dict[str, str]]
    bound: NotRequired[RankBound]


def is_states_folder(folder: Path) -> bool:
    """Return whether a folder is one, whole or half written; a model's may have a folder of the same name in it."""
    return (folder / ABOUT).is_file() or ((folder / HIDDEN).is_dir() and not (folder / "config.json").exists())


def open_folder(folder: str, *, head: str | None = None, bias: str | None = None) -> ModelOnText:
    """Open such a folder.

    Args:
        folder: path of the folder.
        head: another W, (M, d), as FILE or FILE:NAME, or that of a Hugging Face model, in place of that of the folder;
            what else its output layer has stays.
        bias: another bias, (M,), likewise.

    Raises:
        SourceError: for a folder that is not finished, or whose files are damaged or do not fit each other.
    """
    path = Path(folder)
    about = read_json(path / ABOUT, _About, error=SourceError, remedy=AGAIN, finite=True)
    for key in about.keys() - _About.__annotations__.keys():
        if near := meant(key, _About.__annotations__):
            raise SourceError(f"{path / ABOUT} holds {key!r}, which is not read{near}")
    read_tensors = partial(_tensors, is_ours="identity" in about)
    parts = [*map(read_tensors, sorted((path / HIDDEN).glob("*.safetensors"), key=lambda each: by_numbers(each.name)))]
    arrays = read_tensors(path / HEAD)
    settings = {name: about[name] for name in ("scale", "soft_cap") if name in about}
    own, bias_or_own = (head, bias) == (None, None), arrays.get("bias") if bias is None else bias
    if head is None:
        layer = softmax_of(_array(arrays, "weight", HEAD), bias_or_own, **settings)
    else:
        layer, _ = layer_of(head, bias_or_own, **settings)
    layer = layer.to(torch.promote_types(layer.weight.dtype, torch.float32))
    parts = [part for part in parts if len(_array(part, STATES, HIDDEN))]
    blocks = [floats(part[STATES], f"{HIDDEN}, (n, d)", 2) for part in parts]
    if wrong := {each.shape[1] for each in blocks} - {layer.hidden_size}:
        raise SourceError(f"{HIDDEN} holds states of {wrong.pop():,} numbers, and W has {layer.hidden_size:,} columns")
    if (total := sum(map(len, blocks))) != about["contexts"]:
        raise SourceError(f"{path / HIDDEN} holds {total:,} states, and {ABOUT} says {about['contexts']:,}")
    ids, targets = (_numbers(parts, name) for name in (IDS, TARGETS))
    normalize, norm = None, _norm(arrays, kind := about.get("norm"), layer.hidden_size)
    if norm and kind:
        normalize = norm_of(*norm, kind, about.get("norm_eps"))
    twice = normalize is not None and is_normed(normalize, blocks)
    parts.clear()  # they are let go of as they are joined
    states = _joined(blocks, total, normalize, layer.weight.dtype)
    given = states_of(
        layer,
        states,
        ids=ids,
        targets=targets,
        starts=sorted({0, *(start for start in about.get("starts", []) if start < len(states))}),
        path=folder,
        normed=None if "identity" in about and own else bool(kind),
        tokenizer=read_tokenizer(path) if (path / TOKENIZER).exists() else None,
    )
    source = about.get("source", {"corpus": about.get("text"), "split": None})
    given.description = {**given.description, **source, "path": folder, "kind": "states"}
    given = doubted(given, TWICE) if twice else given
    if "bound" in about and own:
        assert isinstance(given.model, GivenStates)
        given.model.recorded_bound = RankBound(**about["bound"])
    return given


def _norm(arrays: dict[str, Tensor], kind: str | None, size: int) -> tuple[Tensor, Tensor | None] | None:
    """Return the weight and the bias of the final norm, (d,) each, if there is one."""
    held = {name: floats(arrays[name], f"{name}, (d,)", 1) for name in NORM if name in arrays}
    fitting = {None: ([],), "rms": ([NORM[0]],), "layer": ([NORM[0]], [*NORM])}[kind]
    if [*held] not in fitting or any(len(each) != size for each in held.values()):
        raise SourceError(
            f"the norm in {ABOUT} is {kind}, and {HEAD} holds {' and '.join(held) or 'none'}: rms takes {NORM[0]}, "
            f"layer also {NORM[1]}, of {size:,} entries each, and states from after the norm take none"
        )
    return (held[NORM[0]], held.get(NORM[1])) if held else None


def _array(arrays: dict[str, Tensor], name: str, place: str) -> Tensor:
    if name not in arrays:
        raise SourceError(f"{place} does not hold the array {name}")
    return arrays[name]


def _joined(
    blocks: list[Tensor], total: int, normalize: Callable[[Tensor], Tensor] | None, dtype: torch.dtype
) -> Tensor:
    """Return states (n, d) as one tensor (T, d), normalized in a type where there is a norm; ``blocks`` is emptied."""
    if normalize is None:
        dtype = reduce(torch.promote_types, (block.dtype for block in blocks))
    states, start = torch.empty(total, blocks[0].shape[1], dtype=dtype), 0
    blocks.reverse()
    while blocks:
        block = blocks.pop()
        states[start : start + len(block)] = block if normalize is None else normalize(block.to(dtype))
        start += len(block)
    return states


def _numbers(parts: list[dict[str, Tensor]], name: str) -> NDArray[np.int64] | None:
    """Return one array of all files, (T,), or ``None`` where none of them has it."""
    if not any(name in part for part in parts):
        return None
    if any(name not in part or part[name].shape != part[STATES].shape[:1] for part in parts):
        raise SourceError(f"all files of {HIDDEN} must have {name}, one for each state, or none")
    return whole_numbers(torch.cat([part[name] for part in parts]), name)


def _tensors(file: Path, *, is_ours: bool) -> dict[str, Tensor]:
    """Return the arrays of a file, whose checksum must hold; one that is not ours may have none."""
    try:
        return read(file, key=KEY, optional=not is_ours)[0]
    except DAMAGE as error:
        raise SourceError(f"{file} cannot be read ({first_line(error)}): write it again") from error
