"""A run without its trainer state: every command takes it, and its weights are the old ones, rounded or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from softmax_bottleneck import rank
from softmax_bottleneck.errors import RunError
from softmax_bottleneck.language_models import checkpoint
from softmax_bottleneck.language_models.checkpoint import copy_weights
from softmax_bottleneck.training import fit
from softmax_bottleneck.training.config import parse
from softmax_bottleneck.training.fit import result


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("a b c a c b d\n" * 12, encoding="utf-8")
    backbone = {"name": "lstm", "embedding_size": 8, "hidden_size": 16, "layers": 1}
    model = {"backbone": backbone, "head": {"name": "softmax", "embedding_size": 8}}
    training = {"epochs": 1, "batch_size": 2}
    config = parse({"corpus": str(tmp_path), "model": model, "training": training}, where="the test")
    return fit(config, tmp_path / "run", device="cpu").path


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_its_weights(dtype: torch.dtype, run: Path, tmp_path: Path) -> None:
    copied = checkpoint.load(copy_weights(run, tmp_path / "copy", dtype=dtype))
    old, new = (checkpoint.model_tensors(model) for model in (checkpoint.load(run).model, copied.model))
    assert old.keys() == new.keys()
    for name, tensor in old.items():
        assert new[name].dtype == torch.float32
        assert torch.equal(new[name], tensor.to(dtype).float())
    assert not (copied.path / "trainer_state").exists()
    size = (copied.path / "model.safetensors").stat().st_size
    parameters = sum(tensor.numel() for tensor in old.values())
    assert parameters * dtype.itemsize < size < parameters * dtype.itemsize + 1500
    assert rank(copied.path).bound == rank(run).bound


def test_after_a_kill_the_same_call_makes_it(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_complete", killed)
        with pytest.raises(KeyboardInterrupt):
            copy_weights(run, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    copied = copy_weights(run, tmp_path / "copy")
    assert not list(tmp_path.glob(".copy*"))
    assert result(copied) == replace(result(run), path=copied)


def test_a_changed_copy_is_noticed(run: Path, tmp_path: Path) -> None:
    copied = copy_weights(run, tmp_path / "copy")
    (copied / "model.safetensors").write_bytes((run / "model.safetensors").read_bytes())
    with pytest.raises(RunError, match="has changed since the run was finished"):
        checkpoint.load(copied)


def test_what_cannot_be_copied(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="exists already; give another folder"):
        copy_weights(run, run)
    with pytest.raises(RunError, match=r"float32 or bfloat16, not torch\.float16"):
        copy_weights(run, tmp_path / "copy", dtype=torch.float16)
    (run / "COMPLETE").unlink()
    with pytest.raises(RunError, match="is not finished"):
        copy_weights(run, tmp_path / "copy")
