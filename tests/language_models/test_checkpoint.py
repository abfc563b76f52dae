"""A run on disk: what is read back, and what is refused because it is not what was written."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from softmax_bottleneck.cli.doctor import check
from softmax_bottleneck.core import tensor_file
from softmax_bottleneck.errors import RunError
from softmax_bottleneck.language_models import checkpoint
from softmax_bottleneck.language_models.checkpoint import copy_weights
from softmax_bottleneck.language_models.model import LanguageModel, ModelConfig
from softmax_bottleneck.training.fit import result

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def run(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(runs["mos"], tmp_path / "run")


def _seal(run: Path) -> None:
    """Make ``COMPLETE`` agree with what is there now."""
    names = json.loads((run / "COMPLETE").read_text())["sha256"]
    hashes = {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}
    (run / "COMPLETE").write_text(json.dumps({"sha256": hashes}))


def test_it_is_read_back(run: Path) -> None:
    before = torch.get_rng_state()
    loaded = checkpoint.load(str(run))
    assert torch.equal(torch.get_rng_state(), before)
    assert loaded.path == run
    assert loaded.corpus == str(loaded.config["corpus"]["name"])
    assert len(loaded.vocabulary) == loaded.model.head.vocab_size == 40
    assert not loaded.model.training
    assert loaded.model.head.weight is loaded.model.backbone.embedding.weight
    on_disk = load_file(run / "model.safetensors")
    state = loaded.model.state_dict()
    assert set(state) - set(on_disk) == {"head.weight"}
    assert all(torch.equal(state[name], tensor) for name, tensor in on_disk.items())
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}


def test_complete_holds_the_hash_of_every_other_file_but_the_times(run: Path) -> None:
    hashes = json.loads((run / "COMPLETE").read_text())["sha256"]
    files = {str(file.relative_to(run)) for file in run.rglob("*") if file.is_file()}
    assert set(hashes) == {name for name in files if "/" not in name} - {"COMPLETE", "timing.jsonl"}
    assert all(hashlib.sha256((run / name).read_bytes()).hexdigest() == digest for name, digest in hashes.items())


def test_unfinished(run: Path) -> None:
    (run / "timing.jsonl").unlink()
    checkpoint.load(run)  # the times are not sealed
    (run / "COMPLETE").unlink()
    with pytest.raises(RunError, match=r"is not finished \(it has no COMPLETE file\); run the same 'bottleneck train'"):
        checkpoint.load(run)
    assert checkpoint.is_run(run)


@pytest.mark.parametrize("name", ["config.json", "vocabulary.json", "model.safetensors", "metrics.jsonl"])
def test_a_changed_or_lost_file_is_named(name: str, run: Path) -> None:
    file = run / name
    data = bytearray(file.read_bytes())
    data[-2] ^= 1  # within a string, a number or a tensor; in config.json the last bracket
    if name == "config.json":
        data = bytearray(file.read_bytes().replace(b'"seed": 0', b'"seed": 1'))
    file.write_bytes(data)
    with pytest.raises(RunError, match=rf"{file} has changed since the run was finished; train the run again or copy"):
        checkpoint.load(run)
    file.unlink()
    with pytest.raises(RunError, match=rf"has no config\.json|cannot read {file}: No such"):
        checkpoint.load(run)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"model_type": "gpt2"}', r"config\.json was not written by this tool"),
        (b'{"format": "softmax-bottleneck run 2"}', r"\(its format is not 'softmax-bottleneck run 1'\)"),
        (b"{", "it is not JSON"),
        (b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_another_tools_config(data: bytes, message: str, run: Path) -> None:
    (run / "config.json").write_bytes(data)
    with pytest.raises(RunError, match=message):
        checkpoint.load(run)
    assert not checkpoint.is_run(run)


def test_what_is_no_folder(run: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "missing", run / "config.json"):
        with pytest.raises(
            RunError,
            match=f"the run folder {path} does not exist; 'bottleneck train --preset NAME --out {path}' makes one",
        ):
            checkpoint.load(path)
        assert not checkpoint.is_run(path)
    with pytest.raises(RunError, match=r"has no config\.json, so it is not a run"):
        checkpoint.load(tmp_path)
    (tmp_path / "config.json").mkdir()
    with pytest.raises(RunError, match=r"cannot read .*config\.json: it is a folder"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("data", [b"{}", b'{"sha256": {}}', b"\xff"])
def test_a_damaged_seal(data: bytes, run: Path) -> None:
    (run / "COMPLETE").write_bytes(data)
    with pytest.raises(RunError, match=r"(COMPLETE is damaged|cannot read).*.*; train the run again"):
        checkpoint.load(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("head.bias"), "tensor 'head.bias' is missing or unexpected"),
        (lambda t: t.update(extra=torch.ones(2)), "tensor 'extra' is missing or unexpected"),
        (
            lambda t: t.update({"head.bias": torch.ones(3)}),
            r"'head\.bias' is torch.float32 of shape \(3,\), not torch.float32 of shape \(40,\)",
        ),
        (
            lambda t: t.update({"head.bias": torch.ones(40).half()}),
            r"'head\.bias' is torch.float16 of shape \(40,\), not torch.float32 of shape",
        ),
        (lambda t: t["head.bias"].fill_(torch.inf), "'head.bias' holds a number that is not finite"),
        (lambda t: t["head.bias"].fill_(torch.nan), "'head.bias' holds a number that is not finite"),
    ],
)
def test_weights_of_another_model(change: Callable[[dict[str, Any]], Any], message: str, run: Path) -> None:
    tensors = load_file(run / "model.safetensors")
    change(tensors)
    (run / "model.safetensors").write_bytes(tensor_file.pack(tensors, key="model"))
    _seal(run)
    with pytest.raises(RunError, match=rf"model\.safetensors does not fit its config\.json: {message}"):
        checkpoint.load(run)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("config.json", '"model": {', '"modell": {'),
        ("config.json", '"name": "mos"', '"name": "sofmax"'),
        ("config.json", '"components": 3', '"components": "two"'),
        ("vocabulary.json", "[", "{"),
    ],
)
def test_contents_that_make_no_model(file: str, old: str, new: str, run: Path) -> None:
    """Written by a later version, say, and sealed."""
    text = (run / file).read_text()
    assert old in text
    (run / file).write_text(text.replace(old, new))
    _seal(run)
    with pytest.raises(RunError, match=f"{run}.* (cannot be read|is damaged)"):
        checkpoint.load(run)


def _flip(data: bytes, share: float) -> bytes:
    """Change a bit of the numbers."""
    changed, start = bytearray(data), 8 + int.from_bytes(data[:8], "little")
    changed[start + int(share * (len(data) - start))] ^= 1
    return bytes(changed)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut within the header": lambda data: data[:100],
    "cut at the end": lambda data: data[:-1],
    "the first number": lambda data: _flip(data, 0.0),
    "the last number": lambda data: _flip(data, 0.999),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_weights_are_seen_though_they_are_sealed(name: str, run: Path) -> None:
    """The file's own checksum was made of the weights in memory."""
    file = run / "model.safetensors"
    file.write_bytes(DAMAGE[name](file.read_bytes()))
    _seal(run)
    for read in (checkpoint.load, check):
        with pytest.raises(RunError, match=r"the weights .*model\.safetensors are damaged \(.*\); train the run again"):
            read(run)


@pytest.mark.parametrize("tied", [True, False])
def test_weights_round_trip(tied: bool, tmp_path: Path) -> None:
    """Tied embeddings are stored once, and a strided tensor is stored in order."""
    config = ModelConfig.model_validate({"head": {"name": "softmax", "embedding_size": 100}, "tie_embeddings": tied})
    model, other = LanguageModel(config, vocab_size=7), LanguageModel(config, vocab_size=7)
    strided = torch.randn(100, 7).T
    model.backbone.embedding.weight.data = strided
    checkpoint.save_model(tmp_path / "file", model)
    stored = checkpoint.read_tensors(tmp_path / "file")
    assert ("head.weight" in stored) == (not tied)
    assert torch.equal(stored["backbone.embedding.weight"], strided)
    other.backbone.embedding.weight.data = torch.zeros(100, 7).T  # filled in place, whatever its strides
    checkpoint.load_tensors_into(other, stored, where=tmp_path / "file")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert (other.head.weight is other.backbone.embedding.weight) == tied


@pytest.mark.parametrize("name", ["mos", "softmax"])
def test_an_output_layer_is_read_without_the_body(name: str) -> None:
    whole, alone = (checkpoint.load(FIXTURES / name, body=body).model for body in (True, False))
    assert {key: each.tolist() for key, each in alone.head.state_dict().items()} == {
        key: each.tolist() for key, each in whole.head.state_dict().items()
    }
    built = {key for key, each in alone.named_parameters() if not each.is_meta and "head" not in key}
    assert built == {"backbone.embedding.weight"}  # which the head is tied to
    hidden = torch.randn(3, whole.head.hidden_size)
    assert torch.equal(alone.head.log_prob(hidden), whole.head.log_prob(hidden))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_copy_has_the_same_weights_rounded_or_not(dtype: torch.dtype, run: Path, tmp_path: Path) -> None:
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


def test_a_killed_copy_is_made_by_the_same_call(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_cannot_be_copied(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="exists already; give another folder"):
        copy_weights(run, run)
    with pytest.raises(RunError, match=r"float32 or bfloat16, not torch\.float16"):
        copy_weights(run, tmp_path / "copy", dtype=torch.float16)
    (run / "COMPLETE").unlink()
    with pytest.raises(RunError, match="is not finished"):
        copy_weights(run, tmp_path / "copy")
