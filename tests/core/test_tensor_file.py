"""Tensors and numbers come back as they were, and no changed byte passes for what was written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from softmax_bottleneck.core import tensor_file

TENSORS = {
    "matrix": torch.arange(6.0).reshape(2, 3),
    "strided": torch.arange(6.0).reshape(2, 3).T,
    "half": torch.ones(3, dtype=torch.bfloat16),
    "scalar": torch.tensor(3, dtype=torch.int64),
    "empty": torch.empty(0, 4),
    "flags": torch.tensor([True, False]),
}
ABOUT = {"loss": 0.1 + 0.2, "rows": [1, None, "ü"]}


def test_they_come_back(tmp_path: Path) -> None:
    data = tensor_file.pack(TENSORS, key="state", about=ABOUT)
    assert data == tensor_file.pack(dict(reversed(TENSORS.items())), key="state", about=ABOUT)
    (tmp_path / "file").write_bytes(data)
    tensors, about = tensor_file.read(tmp_path / "file", key="state")
    assert about == ABOUT
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
    assert all(tensors[name].dtype == tensor.dtype for name, tensor in TENSORS.items())


def test_files_from_before_the_checksum_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(save({"a": torch.ones(2)}))
    assert tensor_file.read(tmp_path / "file", key="model")[1] is None
    (tmp_path / "file").write_bytes(save({"a": torch.ones(2)}, metadata={"state": '{"step": 3}'}))
    assert tensor_file.read(tmp_path / "file", key="state")[1] == {"step": 3}
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(tensor_file.DAMAGE):
        tensor_file.read(tmp_path / "file", key="state")
