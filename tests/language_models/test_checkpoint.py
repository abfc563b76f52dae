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

from attacks.damage import folder_instead, inside, remove, write
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
    (run / "timing.jsonl").unlink()
    checkpoint.load(run)


def _change(name: str, change: Callable[[bytes], bytes], *, seal: bool = False) -> Callable[[Path], object]:
    """Change the bytes of a file; ``seal``: as if it had been so when the run was finished."""

    def changed(run: Path) -> None:
        before = (run / name).read_bytes()
        (run / name).write_bytes(after := change(before))
        assert after != before
        if seal:
            _seal(run)

    return changed


def _replaced(name: str, old: bytes, new: bytes, **seal: bool) -> Callable[[Path], object]:
    return _change(name, lambda data: data.replace(old, new, 1), **seal)


def _weights(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], object]:
    def changed(run: Path) -> None:
        tensors = load_file(run / "model.safetensors")
        change(tensors)
        (run / "model.safetensors").write_bytes(tensor_file.pack(tensors, key="model"))
        _seal(run)

    return changed


def _flip(data: bytes, share: float) -> bytes:
    """Change a bit of the numbers."""
    changed, start = bytearray(data), 8 + int.from_bytes(data[:8], "little")
    changed[start + int(share * (len(data) - start))] ^= 1
    return bytes(changed)


CHANGED = "has changed since the run was finished; train the run again or copy"
NO_MODEL = "(cannot be read|is damaged)"
UNFIT = r"model\.safetensors does not fit its config\.json: "
DAMAGED = r"the weights .*model\.safetensors are damaged \(.*\); train the run again"
REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (_replaced("config.json", b'"seed": 0', b'"seed": 1'), rf"config\.json {CHANGED}"),
    (_change("vocabulary.json", lambda data: data[:-2] + b"x" + data[-1:]), rf"vocabulary\.json {CHANGED}"),
    (_change("model.safetensors", lambda data: _flip(data, 0.999)), rf"model\.safetensors {CHANGED}"),
    (_change("metrics.jsonl", lambda data: data[:-2] + b"x" + data[-1:]), rf"metrics\.jsonl {CHANGED}"),
    (inside("config.json", remove), r"has no config\.json, so it is not a run"),
    *(
        (inside(name, remove), rf"cannot read .*{name}: No such")
        for name in ("vocabulary.json", "model.safetensors", "metrics.jsonl")
    ),
    (inside("COMPLETE", remove), r"it has no COMPLETE file\); run the same 'bottleneck train'"),
    (inside("config.json", folder_instead), r"cannot read .*: it is a folder"),
    (inside("config.json", write(b'{"model_type": "gpt2"}')), r"config\.json was not written by this tool"),
    (
        inside("config.json", write(b'{"format": "softmax-bottleneck run 2"}')),
        "format is not 'softmax-bottleneck run 1'",
    ),
    (inside("config.json", write(b"{")), "it is not JSON"),
    (inside("config.json", write(b"\xff\xfe")), "is not UTF-8"),
    *(
        (inside("COMPLETE", write(data)), "(COMPLETE is damaged|cannot read).*.*; train the run again")
        for data in (b"{}", b'{"sha256": {}}', b"\xff")
    ),
    (_weights(lambda t: t.pop("head.bias")), f"{UNFIT}tensor 'head.bias' is missing or unexpected"),
    (_weights(lambda t: t.update(extra=torch.ones(2))), f"{UNFIT}tensor 'extra' is missing or unexpected"),
    (_weights(lambda t: t.update({"head.bias": torch.ones(3)})), r"torch.float32 of shape \(3,\), not .* \(40,\)"),
    (_weights(lambda t: t.update({"head.bias": torch.ones(40).half()})), r"torch.float16 of .*, not torch.float32 of"),
    (_weights(lambda t: t["head.bias"].fill_(torch.inf)), "is damaged: 'head.bias' holds a number that is not finite"),
    (_weights(lambda t: t["head.bias"].fill_(torch.nan)), "is damaged: 'head.bias' holds a number that is not finite"),
    (_replaced("config.json", b'"model": {', b'"modell": {', seal=True), NO_MODEL),
    (_replaced("config.json", b'"name": "mos"', b'"name": "sofmax"', seal=True), NO_MODEL),
    (_replaced("config.json", b'"components": 3', b'"components": "two"', seal=True), NO_MODEL),
    (_replaced("vocabulary.json", b"[", b"{", seal=True), NO_MODEL),
    # The file's own checksum was made of the weights in memory, before any seal.
    (_change("model.safetensors", lambda data: b"", seal=True), DAMAGED),
    (_change("model.safetensors", lambda data: data[:100], seal=True), DAMAGED),
    (_change("model.safetensors", lambda data: data[:-1], seal=True), DAMAGED),
    (_change("model.safetensors", lambda data: _flip(data, 0.0), seal=True), DAMAGED),
    (_change("model.safetensors", lambda data: _flip(data, 0.999), seal=True), DAMAGED),
]


@pytest.mark.parametrize(("damage", "sentence"), REFUSED)
def test_what_is_not_the_run_that_was_written(damage: Callable[[Path], object], sentence: str, run: Path) -> None:
    damage(run)
    with pytest.raises(RunError, match=sentence) as raised:
        checkpoint.load(run)
    assert str(run) in str(raised.value)
    if sentence == DAMAGED:
        with pytest.raises(RunError, match=sentence):
            check(run)


def test_what_is_no_folder(run: Path, tmp_path: Path) -> None:
    made = f"does not exist; 'bottleneck train --preset NAME --out {tmp_path / 'missing'}' makes one"
    for path, sentence in {tmp_path / "missing": made, run / "config.json": "is a file, not a run folder"}.items():
        with pytest.raises(RunError, match=sentence):
            checkpoint.load(path)
        assert not checkpoint.is_run(path)
    (run / "COMPLETE").unlink()
    assert checkpoint.is_run(run)
    (run / "config.json").write_text('{"model_type": "gpt2"}')
    assert not checkpoint.is_run(run)


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
