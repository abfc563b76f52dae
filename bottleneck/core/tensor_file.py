"""Tensors and other values in one safetensors file with a checksum.

The format itself detects truncated files, but not changed numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from .files import open_file
from .json_file import parse_json

_SHA256 = "sha256"
DAMAGE = (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError, RuntimeError)
"""Exceptions for files that are truncated, changed, or of another kind, from `read` or from using its result."""


def pack(tensors: Mapping[str, Tensor], *, key: str, about: Mapping[str, Any] | None = None) -> bytes:
    """Return the bytes of a file.

    Args:
        tensors: tensors by name, on any device.
        key: key of ``about`` and the checksum in the file's metadata.
        about: other values, ready for JSON.
    """
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(stored, metadata={key: json.dumps({**(about or {}), _SHA256: digest(stored, about)})})


def read(path: Path, *, key: str, optional: bool = False) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the other values.

    Args:
        path: a file that `pack` made.
        key: the key that it was made with.
        optional: whether a file without that key is read too, because another program wrote it.

    Raises:
        DAMAGE: for a missing or damaged file.
    """
    with open_file(path), safe_open(path, framework="pt") as file:
        written = (file.metadata() or {}).get(key)
        about: dict[str, Any] = parse_json(written or "{}", dict[str, Any])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if (written or not optional) and about.pop(_SHA256, None) != digest(tensors, about):
        raise ValueError("its checksum does not hold")
    return tensors, about


def digest(tensors: Mapping[str, Tensor], about: Mapping[str, Any] | None = None) -> str:
    """Return a hash of the names, types, shapes and values of tensors, and of values ready for JSON."""
    total = hashlib.sha256(json.dumps(about or {}, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        total.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        total.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
