"""A run that was killed, at any instant and however often, ends with the bytes of one that was not."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from softmax_bottleneck.cli.environment import check
from softmax_bottleneck.core.files import only_process
from softmax_bottleneck.errors import RunError
from softmax_bottleneck.language_models.checkpoint import load
from softmax_bottleneck.training import RunConfig, finetuning, fit
from softmax_bottleneck.training.state import TrainerState, load_state, save_state

fit_module = importlib.import_module("softmax_bottleneck.training.fit")  # the package has a function of that name
Configure = Callable[..., RunConfig]
Contents = Callable[[Path], dict[str, bytes]]


class _Killed(BaseException):
    """The process ends here: nothing after it reaches the disk."""


class _Disk:
    """Counts what changes names on the disk, and dies before or after the one that is asked for."""

    def __init__(self, patch: pytest.MonkeyPatch, *, deadly: int | None = None) -> None:
        self.events, self.deadly, self.dead = 0, deadly, False
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, self._watched(getattr(Path, name)))
        patch.setattr(os, "fsync", lambda _: None)  # a kill does not lose what was written, only a power cut does

    def _watched(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Path, *args: Any, **options: Any) -> Any:
            if change.__name__ == "unlink" and not path.exists():
                return None  # the tidying up after a write that went well
            self._step()
            result = change(path, *args, **options)
            self._step()
            return result

        return watched

    def _step(self) -> None:
        if self.dead or self.events == self.deadly:
            self.dead = True
            raise _Killed
        self.events += 1


@contextlib.contextmanager
def _disk(**options: Any) -> Iterator[_Disk]:
    with pytest.MonkeyPatch.context() as patch:
        yield _Disk(patch, **options)


def test_a_kill_at_every_change_on_the_disk(tmp_path: Path, configure: Configure, contents: Contents) -> None:
    config = configure(save_every=8)
    with _disk() as disk:
        fit(config, tmp_path / "whole", device="cpu")
    expected = contents(tmp_path / "whole")
    assert disk.events > 30
    for deadly in range(disk.events):
        folder = tmp_path / f"killed-{deadly}"
        with _disk(deadly=deadly), pytest.raises(_Killed):
            fit(config, folder, device="cpu")
        with _disk():
            fit(config, folder, device="cpu")
        assert contents(folder) == expected, f"killed at change {deadly}"


@pytest.mark.parametrize("optimizer", [{"name": "sgd", "learning_rate": 0.5}, {"schedule": "constant"}])
@pytest.mark.parametrize("head", [{"name": "softmax", "bias": False}, {"name": "lms-plif", "knots": 100}])
def test_a_kill_at_every_third_change_in_turn(
    head: dict[str, Any], optimizer: dict[str, Any], tmp_path: Path, configure: Configure, contents: Contents
) -> None:
    """One folder, killed again and again, a little later each time."""
    _kill_in_turn(configure(head=head, optimizer=optimizer, save_every=4), tmp_path, contents)


def test_kills_with_all_that_awd_lstm_draws_and_averages(
    tmp_path: Path, configure: Configure, contents: Contents
) -> None:
    """Dropped weights, random lengths, drawn predictions, columns in turn, averages from the second epoch on."""
    config = configure(
        backbone={"name": "awd-lstm", "embedding_size": 4, "hidden_sizes": [7, 6]},
        head={"name": "mos", "components": 2, "context_dropout": 0.3},
        optimizer={"name": "sgd", "learning_rate": 1.0, "clip": 0.25},
        averaging={"start": "epoch", "epoch": 1},
        validations=2,
        bptt_deviation=3.0,
        loss_fraction=0.3,
        micro_batch_size=3,
        epochs=3,
        save_every=5,
    )
    _kill_in_turn(config, tmp_path, contents)


def test_kills_of_the_finetuning_stage(tmp_path: Path, configure: Configure, contents: Contents) -> None:
    """From the best weights of a run, averaged from the first step, until validation no longer improves."""
    first = fit(
        configure(
            optimizer={"name": "sgd", "learning_rate": 12.0},
            averaging={"start": "non-monotone", "interval": 0, "latest": 2},
            validations=2,
            precision="bfloat16",
            epochs=4,
            save_every=5,
        ),
        tmp_path / "first",
        device="cpu",
    )
    config = finetuning(first.path)
    _kill_in_turn(config, tmp_path, contents)
    rows = [json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows[1]["averaged_steps"] == rows[1]["step"] > rows[0]["step"] == 0


def _kill_in_turn(config: RunConfig, tmp_path: Path, contents: Contents) -> None:
    with _disk():
        fit(config, tmp_path / "whole", device="cpu")
    kills = 0
    for deadly in range(1, 1000, 3):
        try:
            with _disk(deadly=deadly):
                fit(config, tmp_path / "run", device="cpu")
            break
        except _Killed:
            kills += 1
    assert kills > 3
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_sigkill(tmp_path: Path, configure: Configure, contents: Contents) -> None:
    """The command itself, killed three times from outside: at its start, amid an epoch, and after two."""
    config = configure(epochs=4, batch_size=1, bptt=4, save_every=10)
    (tmp_path / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    fit(config, tmp_path / "whole", device="cpu")
    run = tmp_path / "run"

    def started() -> bool:
        return (run / "config.json").exists()

    def amid_an_epoch() -> bool:
        states = [int(file.stem.split("-")[1]) for file in (run / "trainer_state").glob("step-*")]
        return max(states, default=0) >= 100

    def after_two() -> bool:
        return (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_bytes().count(b"\n") >= 2

    for reached in (started, amid_an_epoch, after_two):
        with _train(tmp_path) as process:
            while not reached():
                assert process.poll() is None, process.communicate()
                time.sleep(0.001)
            process.kill()
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (run / "COMPLETE").exists()
    with _train(tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "test perplexity" in out
    assert contents(run) == contents(tmp_path / "whole")
    rows = [json.loads(row) for row in (run / "timing.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows})


def test_only_one_process_trains_into_a_folder(tmp_path: Path, configure: Configure) -> None:
    config = configure(epochs=4, batch_size=1, bptt=4, save_every=10)
    (tmp_path / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    run = tmp_path / "run"
    with _train(tmp_path) as process:
        while not [*(run / "trainer_state").glob("step-*")]:
            assert process.poll() is None, process.communicate()
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)
        try:
            before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
            with pytest.raises(
                RunError, match=r"another process is training into .*run: wait until it is done, or name"
            ):
                fit(config, run, device="cpu")
            with pytest.raises(RunError, match="different configuration: seed"):
                fit(config.model_copy(update={"seed": 7}), run, device="cpu")
            assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
        finally:
            process.kill()
        process.communicate()
    assert fit(config, run, device="cpu").steps > 10
    assert fit(config, run, device="cpu").steps > 10  # a finished one keeps nobody off


def test_a_folder_that_another_process_has_just_taken_gets_no_configuration(
    tmp_path: Path, configure: Configure
) -> None:
    with only_process(tmp_path), pytest.raises(RunError, match="another process is training into"):
        fit(configure(), tmp_path, device="cpu")
    assert not [*tmp_path.iterdir()]


def _train(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "softmax_bottleneck",
            "train",
            "--config",
            "config.json",
            "--out",
            "run",
            "--device",
            "cpu",
        ],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _unfinished(folder: Path, config: RunConfig) -> Path:
    """Kill a run at its first mid-epoch state, the fourth file; return that state's file."""
    with _disk(deadly=8), pytest.raises(_Killed):
        fit(config, folder, device="cpu")
    (state,) = (folder / "trainer_state").glob("step-*")
    return state


def test_a_run_is_not_started_anew(tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on takes the remaining steps, not all of them."""
    config = configure()
    state = _unfinished(tmp_path, config)
    assert state.name == "step-000000005.safetensors"
    steps: list[int] = []
    step = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: (steps.append(1), step(self))[1])
    fit(config, tmp_path, device="cpu")
    rows = [json.loads(row) for row in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(steps) == rows[-2]["step"] - 5


@pytest.mark.parametrize("damage", ["truncated", "emptied", "flipped", "no state", "another model"])
def test_a_damaged_state_is_said_to_be_so(damage: str, tmp_path: Path, configure: Configure) -> None:
    config = configure()
    state = _unfinished(tmp_path / "run", config)
    data = bytearray(state.read_bytes())
    if damage == "truncated":
        del data[len(data) // 2 :]
    elif damage == "emptied":
        data.clear()
    elif damage == "flipped":
        data[20] ^= 0xFF
    elif damage == "no state":
        from safetensors.torch import load, save

        data = bytearray(save(load(bytes(data))))
    else:
        other = configure(head={"name": "softmax"})
        data = bytearray(_unfinished(tmp_path / "other", other).read_bytes())
    state.write_bytes(data)
    with pytest.raises(RunError, match="does not fit its config.json" if damage == "another model" else "delete it to"):
        fit(config, tmp_path / "run", device="cpu")
    assert state.read_bytes() == data


@pytest.mark.parametrize("place", ["metadata", *(f"tensor at {share:.2f}" for share in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0))])
def test_a_flipped_bit_of_a_state_is_seen(place: str, tmp_path: Path, configure: Configure) -> None:
    """The bit belongs to a weight, a moment, a random state or the numbers beside them; safetensors checks none."""
    state = _unfinished(tmp_path, configure())
    data = bytearray(state.read_bytes())
    header = 8 + int.from_bytes(data[:8], "little")
    if place == "metadata":
        at = data.index(b"loss_sum") + len(b'loss_sum\\": ') + 4
        assert chr(data[at]).isdigit()
    else:
        at = header + int((len(data) - 1 - header) * float(place.split()[-1]))
    data[at] ^= 1
    state.write_bytes(data)
    with pytest.raises(RunError, match=r"the saved state .* is damaged \(its checksum does not hold\); delete it to"):
        check(tmp_path)
    with pytest.raises(RunError, match=r"the saved state .* is damaged \(its checksum does not hold\); delete it to"):
        fit(configure(), tmp_path, device="cpu")
    assert state.read_bytes() == data


def test_a_bit_flipped_before_the_seal_is_not_sealed_as_true(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk changes what was written, just before its hashes are taken."""
    seal = fit_module.write_complete

    def flip(folder: Path) -> None:
        file = folder / "model.safetensors"
        data = bytearray(file.read_bytes())
        data[-3] ^= 1
        file.write_bytes(data)
        seal(folder)

    monkeypatch.setattr(fit_module, "write_complete", flip)

    def train_and_read() -> None:
        fit(configure(), tmp_path, device="cpu")
        load(tmp_path)

    with pytest.raises(RunError, match=r"is damaged|are damaged|has changed since"):
        train_and_read()


def test_deleting_a_damaged_state_starts_anew(tmp_path: Path, configure: Configure, contents: Contents) -> None:
    config = configure()
    fit(config, tmp_path / "whole", device="cpu")
    _unfinished(tmp_path / "run", config).unlink()
    fit(config, tmp_path / "run", device="cpu")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_lost_weights_are_said_to_be_so(tmp_path: Path, configure: Configure) -> None:
    fit(configure(), tmp_path, device="cpu")
    (tmp_path / "COMPLETE").unlink()
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"the weights .*model\.safetensors are damaged"):
        fit(configure(), tmp_path, device="cpu")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"cannot read the weights .*model\.safetensors: No such file"):
        fit(configure(), tmp_path, device="cpu")


def test_a_lost_vocabulary_is_written_again(tmp_path: Path, configure: Configure, contents: Contents) -> None:
    fit(configure(), tmp_path, device="cpu")
    expected = contents(tmp_path)
    (tmp_path / "COMPLETE").unlink()
    (tmp_path / "vocabulary.json").unlink()
    fit(configure(), tmp_path, device="cpu")
    assert contents(tmp_path) == expected


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_state_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    """Weights, moments, the carried state, the random state, and every float to its last bit."""
    from softmax_bottleneck.language_models.model import LanguageModel, ModelConfig
    from softmax_bottleneck.training import OptimizerConfig
    from softmax_bottleneck.training.optimizer import build

    def build_both(seed: int) -> tuple[LanguageModel, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = LanguageModel(ModelConfig.model_validate({"head": {"name": "softmax"}}), vocab_size=11)
        return model, build(OptimizerConfig.model_validate({"name": name}), model.parameters())

    with torch.random.fork_rng():
        model, optimizer = build_both(0)
        assert load_state(tmp_path, model, optimizer) is None
        ids = torch.randint(11, (5, 2))
        hidden, carried = model.hidden(ids[:-1])
        model.head.nll(hidden, ids[1:]).backward()
        optimizer.step()
        row = {"step": 12, "valid_loss": 1e-300, "valid_perplexity": 1.0}
        state = TrainerState(
            epoch=1, position=70, step=12, loss_sum=1 / 3, loss_tokens=7, best_loss=0.1 + 0.2, metrics=[row]
        )
        save_state(tmp_path, state, model, optimizer, carried)
        drawn = torch.rand(3)
        other, other_optimizer = build_both(1)
        loaded = load_state(tmp_path, other, other_optimizer)
        assert loaded is not None
        assert torch.equal(torch.rand(3), drawn)
    assert loaded[0] == state
    assert all(map(torch.equal, loaded[1], carried))
    for found, expected in ((other.state_dict(), model.state_dict()),):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in found)
    found_state, expected_state = other_optimizer.state_dict()["state"], optimizer.state_dict()["state"]
    assert found_state.keys() == expected_state.keys()
    for index, values in expected_state.items():
        assert all(torch.equal(found_state[index][key], value) for key, value in values.items())
