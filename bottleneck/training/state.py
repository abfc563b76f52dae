"""The complete state of an unfinished run, in one file with one checksum, which is replaced atomically."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel
from typing_extensions import TypedDict

from ..core.devices import ask
from ..core.files import explain_output_errors, make_folder
from ..core.json_file import Count, check_schema
from ..errors import RunError
from ..language_models.checkpoint import STATE, load_tensors_into, model_tensors, read_state, state_files, write_state
from ..language_models.model import LanguageModel


class Row(TypedDict):
    """What the code reads in a row of ``metrics.jsonl``; a row has further keys."""

    step: Count
    valid_loss: float
    valid_perplexity: float
    averaged_steps: NotRequired[Count]


@dataclass
class TrainerState:
    """The numbers of the state, beside its tensors: weights, optimizer, average, recurrent and random states."""

    epoch: Count = 0
    """Finished epochs."""
    position: Count = 0
    """Next row of the columns in this epoch."""
    step: Count = 0
    """Number of updates so far."""
    loss_sum: float = 0.0
    """Sum of the losses of the tokens since the last validation, in nats."""
    loss_tokens: Count = 0
    """Number of those tokens."""
    learning_rate: float = 0.0
    """Learning rate of the last update."""
    best_loss: float | None = None
    """Lowest validation loss so far, nats."""
    metrics: list[Row] = field(default_factory=list)
    """Rows of ``metrics.jsonl``."""
    averaged: Count | None = None
    """Number of steps in the average of the weights; ``None`` before averaging starts."""

    @property
    def is_validated(self) -> bool:
        """Whether the weights after the last update have been validated."""
        return bool(self.metrics) and self.metrics[-1]["step"] == self.step

    @property
    def losses(self) -> list[float]:
        """The validation losses so far, in nats, including that of the initial weights."""
        return [row["valid_loss"] for row in self.metrics]


def saved_step(folder: Path) -> int | None:
    """Return the step of the last saved state of a run, or ``None`` when nothing was saved yet."""
    files = state_files(folder)
    return int(files[-1].stem.removeprefix("step-")) if files else None


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the generators that dropout on ``device`` draws from."""
    state = ask(device, "get_rng_state", device)
    return {"cpu": torch.get_rng_state()} | ({} if state is None else {device.type: state})


def save_state(
    folder: Path,
    state: TrainerState,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    carried: Sequence[Tensor],
    *,
    average: AveragedModel | None,
    random: Sequence[Mapping[str, Tensor]],
) -> None:
    """Save the state of a run in place of the one before.

    ``carried`` is the recurrent state of all columns, ``random`` the `random_states` of each process.
    """
    parts: dict[str, Mapping[str, Tensor]] = {
        "model": model_tensors(model),
        "carried": {str(index): tensor for index, tensor in enumerate(carried)},
        "average": {} if average is None else dict(average.module.named_parameters()),
        **{f"optimizer.{index}": values for index, values in optimizer.state_dict()["state"].items()},
        **{f"random.{process}": states for process, states in enumerate(random)},
    }
    file = make_folder(folder / STATE) / f"step-{state.step:09d}.safetensors"
    tensors = {f"{part}.{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
    write_state(file, tensors, vars(state))
    _keep_only(folder, file)


def load_state(
    folder: Path,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    *,
    process: int = 0,
    processes: int = 1,
) -> tuple[TrainerState, tuple[Tensor, ...], AveragedModel | None] | None:
    """Restore model, optimizer and random states, and return the rest, or ``None`` if no state was saved.

    The rest is the numbers, the recurrent state, and the average of the weights, if it has started.

    `RunError` for a damaged state, or one saved by another number of ``processes``, each of which has random states.
    """
    file = next(reversed(state_files(folder)), None)
    if file is None:
        return None
    tensors, numbers = read_state(file)
    saved_by = sum(name.startswith("random.") and name.endswith(".cpu") for name in tensors)
    if saved_by not in (0, processes):
        raise RunError(
            f"the saved state {file} is that of {saved_by} processes, not {processes}: start {saved_by} again"
        )
    load_tensors_into(model, _part(tensors, "model"), where=file)
    device = next(model.parameters()).device
    try:
        check_schema(numbers, TrainerState)
        state, generators = TrainerState(**numbers), _part(tensors, f"random.{process}")
        groups = optimizer.state_dict()["param_groups"]
        moments = {number: _part(tensors, f"optimizer.{number}") for group in groups for number in group["params"]}
        optimizer.load_state_dict(
            {"state": {number: saved for number, saved in moments.items() if saved}, "param_groups": groups}
        )
        carried_by_number = _part(tensors, "carried")
        carried = tuple(carried_by_number[str(index)].to(device) for index in range(len(carried_by_number)))
        average = None
        if state.averaged is not None:
            average = AveragedModel(model)
            average.n_averaged.fill_(state.averaged)
            average.module.load_state_dict(_part(tensors, "average"), strict=False)  # tied weights are there once
        torch.set_rng_state(generators["cpu"])
        if device.type in generators:
            ask(device, "set_rng_state", generators[device.type], device)
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        raise RunError(f"the saved state {file} is damaged ({error}); delete it to start the run over") from error
    if process == 0:
        _keep_only(folder, file)  # a killed process may have left an older state
    return state, carried, average


def _part(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    prefix = f"{part}."
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _keep_only(folder: Path, file: Path) -> None:
    with explain_output_errors(file.parent):
        for old in state_files(folder):
            if old != file:
                old.unlink()
