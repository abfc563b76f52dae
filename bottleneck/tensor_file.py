"""Tensors and numbers in one safetensors file, under a checksum made before anything is written.

The format itself notices what is cut short, and no changed number.
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

_SHA256 = "sha256"
DAMAGE = (OSError, SafetensorError, KeyError, TypeError, ValueError)
"""What `read`, and a reader of what it returns, raise for files that are cut short, changed, or of another kind."""


def pack(tensors: Mapping[str, Tensor], *, key: str, about: Mapping[str, Any] | None = None) -> bytes:
    """Return the bytes of a file.

    Args:
        tensors: by name, on any device.
        key: of the file's metadata under which ``about`` and the checksum stand.
        about: what else is kept, as JSON.
    """
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(stored, metadata={key: json.dumps({**(about or {}), _SHA256: _digest(stored, about or {})})})


def read(path: Path, *, key: str) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Return the tensors and what is kept beside them, ``None`` where nothing is; of older files unchecked.

    Raises:
        DAMAGE: the file is absent or damaged.
    """
    with safe_open(path, framework="pt") as file:
        text = (file.metadata() or {}).get(key)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if text is None:
        return tensors, None
    about = dict(json.loads(text))
    if about.pop(_SHA256, None) not in (None, _digest(tensors, about)):
        raise ValueError("its checksum does not hold")
    return tensors, about


def _digest(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
