"""The exact state of an unfinished run, in one file: a kill at any instant leaves the last whole one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..checkpoint import STATE, load_tensors_into, model_tensors
from ..errors import RunError
from ..files import explain_output_errors, make_folder, write_bytes
from ..language_model import LanguageModel


@dataclass
class TrainerState:
    """Where training stands, beside the tensors: everything that is a number or a list of them."""

    epoch: int = 0
    """Finished epochs."""
    position: int = 0
    """Row of the batched text that comes next in this epoch."""
    step: int = 0
    """Updates made so far."""
    loss_sum: float = 0.0
    """Σ nll of this epoch's tokens, nats."""
    loss_tokens: int = 0
    best_loss: float | None = None
    """Lowest validation loss so far, nats."""
    metrics: list[dict[str, Any]] = field(default_factory=list)
    """Rows of ``metrics.jsonl``."""


def save_state(
    folder: Path,
    state: TrainerState,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    carried: tuple[Tensor, ...],
) -> None:
    """Write the state of a run beside the last one, then drop the last one."""
    tensors = {f"model.{name}": tensor for name, tensor in model_tensors(model).items()}
    for index, values in optimizer.state_dict()["state"].items():
        for key, value in values.items():
            tensors[f"optimizer.{index}.{key}"] = value
    tensors |= {f"carried.{index}": tensor for index, tensor in enumerate(carried)}
    tensors["random.cpu"] = torch.get_rng_state()
    if next(model.parameters()).is_cuda:
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    make_folder(folder / STATE)
    file = folder / STATE / f"step-{state.step:09d}.safetensors"
    write_bytes(file, save(tensors, metadata={"state": json.dumps(vars(state))}))
    _keep_only(folder, file)


def load_state(
    folder: Path, model: LanguageModel, optimizer: torch.optim.Optimizer
) -> tuple[TrainerState, tuple[Tensor, ...]] | None:
    """Put model, optimizer and random states back; return the rest, or ``None`` when nothing was saved yet."""
    files = _files(folder)
    if not files:
        return None
    try:
        with safe_open(files[-1], framework="pt") as file:
            state = TrainerState(**json.loads(file.metadata()["state"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        generator = tensors["random.cpu"]
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"the saved state {files[-1]} is damaged ({error}); delete it to start the run anew") from error
    _keep_only(folder, files[-1])  # a kill may have come between its writing and the last one's removal
    device = next(model.parameters()).device
    load_tensors_into(model, _part(tensors, "model."), where=files[-1])
    _restore_optimizer(optimizer, _part(tensors, "optimizer."))
    carried = _part(tensors, "carried.")
    torch.set_rng_state(generator)
    if "random.cuda" in tensors and device.type == "cuda":
        torch.cuda.set_rng_state(tensors["random.cuda"])
    return state, tuple(carried[str(index)].to(device) for index in range(len(carried)))


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    values: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".")
        values.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": values, "param_groups": optimizer.state_dict()["param_groups"]})


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _keep_only(folder: Path, file: Path) -> None:
    with explain_output_errors(file.parent):
        for old in _files(folder):
            if old != file:
                old.unlink()


def _files(folder: Path) -> list[Path]:
    return sorted((folder / STATE).glob("step-*.safetensors")) if (folder / STATE).is_dir() else []
