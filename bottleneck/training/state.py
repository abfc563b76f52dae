"""The numbers that an unfinished run keeps in its state, beside tensors, and the file of its validations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from ..core.files import json_lines, write_bytes
from ..core.json_file import Count
from ..language_models.checkpoint import METRICS


class Row(TypedDict):
    """What the code reads in a row of ``metrics.jsonl``; a row has further keys."""

    step: Count
    valid_loss: float
    valid_perplexity: float
    averaged_steps: NotRequired[Count]


@dataclass
class TrainerState:
    """The numbers of the state; see `Loop.state_dict` for its tensors."""

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


def write_metrics(folder: Path, rows: Sequence[Any]) -> None:
    """Write ``metrics.jsonl``, one line for each validation."""
    write_bytes(folder / METRICS, json_lines(rows))
