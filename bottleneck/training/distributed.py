"""Training in several processes: each works on its own columns of the batch, and gradients are averaged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..errors import BottleneckError, ConfigurationError, TrainingError
from ..spectrum.processes import Processes, launched

Result = TypeVar("Result")


@dataclass(frozen=True)
class Team:
    """The processes that train one model; the first one writes."""

    index: int = 0
    count: int = 1
    processes: Processes = field(default_factory=Processes)
    """What the launcher started; it knows the group that waits long, and lets go of it in time."""

    @property
    def first(self) -> bool:
        """Whether this process writes and reports."""
        return self.index == 0

    def share(self, batch_size: int) -> slice:
        """Return this process's columns; `ConfigurationError` when they cannot be shared equally."""
        if batch_size % self.count:
            raise ConfigurationError(
                f"training.batch_size={batch_size} columns cannot be shared equally by {self.count} processes: give a "
                f"multiple of {self.count}"
            )
        width = batch_size // self.count
        return slice(self.index * width, (self.index + 1) * width)

    def wrap(self, objective: nn.Module) -> nn.Module:
        """Return the module whose backward pass averages the gradients of all processes."""
        if self.count == 1:
            return objective
        return nn.parallel.DistributedDataParallel(objective, gradient_as_bucket_view=True)

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of the processes' values."""
        if self.count > 1:
            value = value.clone()
            torch.distributed.all_reduce(value)
            value /= self.count
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return every process's value, in all of them."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(values, value)
        return values

    def in_first(self, work: Callable[[], Result]) -> Result:
        """Do something in the first process; return its result, or raise its error, in all of them.

        The others wait as long as it takes: a validation may take longer than a process that is gone is waited for.
        """
        if self.count == 1:
            return work()
        outcome: list[Any] = [None, None]
        if self.first:
            try:
                outcome[0] = work()
            except BottleneckError as error:
                outcome[1] = error
        torch.distributed.broadcast_object_list(outcome, src=0, group=self.processes.patient)
        if outcome[1] is not None:
            raise outcome[1]
        result: Result = outcome[0]
        return result


@contextmanager
def team() -> Iterator[Team]:
    """Join the processes that ``torchrun`` started while the block runs; without it this one trains alone."""
    with launched() as processes:
        try:
            yield Team(processes.index, processes.count, processes)
        except RuntimeError as error:
            if processes.count == 1 or not _is_communication(error):
                raise
            raise TrainingError(
                f"another process of this training is gone ({_reason(error)}); what was saved is whole: start all of "
                "them again to continue"
            ) from error


def _reason(error: RuntimeError) -> str:
    """Return a library's first sentence, without the place in its source that gloo begins with."""
    return re.sub(r"^\[\S*\] *", "", str(error).splitlines()[0]).partition(". ")[0]


def _is_communication(error: RuntimeError) -> bool:
    return isinstance(error, torch.distributed.DistError) or any(word in str(error) for word in ("gloo", "NCCL"))
