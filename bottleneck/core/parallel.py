"""Parallel computation in the processes of ``torchrun``, PyTorch's launcher."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..errors import BottleneckError, ConfigurationError, ParallelError, first_line

Value = TypeVar("Value")

SECONDS_TO_WAIT = 600
"""Longest time, in seconds, that a process waits for the numbers of another."""

SECONDS_VARIABLE = "SOFTMAX_BOTTLENECK_JOIN_SECONDS"
SECONDS_TO_JOIN = 60
"""Longest time, in seconds, that a process waits for the others to start, unless `SECONDS_VARIABLE` sets another."""

HOURS_IN_FIRST = 24
"""Longest time, in hours, that the others wait while the first process works alone."""


@dataclass(eq=False)
class Processes:
    """The processes of ``torchrun``, or this one alone."""

    index: int = 0
    count: int = 1
    patient_group: Any = None
    """The process group that waits for `HOURS_IN_FIRST`."""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.index == 0

    def takes(self, block: int) -> bool:
        """Return whether this process takes the block with this number; blocks go to the processes in turn."""
        return block % self.count == self.index

    def share(self, columns: int) -> slice:
        """Return this process's columns of a batch.

        Raises:
            ConfigurationError: for columns that cannot be shared equally.
        """
        if columns % self.count:
            raise ConfigurationError(
                f"training.batch_size={columns} columns cannot be shared equally by {self.count} processes: give a "
                f"multiple of {self.count}"
            )
        width = columns // self.count
        return slice(self.index * width, (self.index + 1) * width)

    def wrap(self, objective: nn.Module) -> nn.Module:
        """Return the module whose backward pass averages the gradients of all processes."""
        if self.count == 1:
            return objective
        return nn.parallel.DistributedDataParallel(objective, gradient_as_bucket_view=True)

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum of the processes' tensors, in all of them; ``value`` is overwritten."""
        if self.count > 1:
            torch.distributed.all_reduce(value)
        return value

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of the processes' tensors, in all of them."""
        return value if self.count == 1 else self.sum(value.clone()) / self.count

    def gather(self, value: Any) -> list[Any]:
        """Return every process's value, in all of them."""
        values: list[Any] = [value] * self.count
        if self.count > 1:
            torch.distributed.all_gather_object(values, value)
        return values

    def send(self, tensors: Sequence[Tensor], to: int) -> None:
        """Send float32 or float64 tensors of at most two dimensions, all on one device, to another process."""
        device = tensors[0].device
        torch.distributed.send(torch.tensor(len(tensors), device=device), to)
        for tensor in tensors:
            double = int(tensor.dtype == torch.float64)
            sizes = [double, tensor.ndim, *tensor.shape, *[0] * (2 - tensor.ndim)]
            torch.distributed.send(torch.tensor(sizes, device=device), to)
            torch.distributed.send(tensor.contiguous(), to)

    def receive(self, origin: int, device: torch.device) -> Iterator[Tensor]:
        """Yield the tensors that another process sends."""
        count, header = torch.tensor(0, device=device), torch.zeros(4, dtype=torch.int64, device=device)
        torch.distributed.recv(count, origin)
        for _ in range(int(count)):
            torch.distributed.recv(header, origin)
            double, dimensions, *sizes = header.tolist()
            dtype = torch.float64 if double else torch.float32
            tensor = torch.zeros(sizes[:dimensions], dtype=dtype, device=device)
            torch.distributed.recv(tensor, origin)
            yield tensor

    def in_first(self, work: Callable[[], Value]) -> Value:
        """Call ``work`` in the first process; return its result, or raise its error, in all of them.

        The others wait up to `HOURS_IN_FIRST`.
        """
        if self.count == 1:
            return work()
        outcome: list[Any] = [None, None]
        if self.first:
            try:
                outcome[0] = work()
            except BottleneckError as error:
                outcome[1] = error
        torch.distributed.broadcast_object_list(outcome, src=0, group=self.patient_group)
        if outcome[1] is not None:
            raise outcome[1]
        result: Value = outcome[0]
        return result


ALONE = Processes()


def _variable(name: str, default: int, remedy: str) -> int:
    """Return the number in an environment variable; `ConfigurationError` for anything else."""
    value = os.environ.get(name) or str(default)
    if not re.fullmatch(r"[0-9]{1,6}", value):
        raise ConfigurationError(f"{name} must be an integer, got {value!r}: {remedy}, or unset it")
    return int(value)


def _launched_count() -> int:
    """Return how many processes a launcher started; `ConfigurationError` when its variables are wrong."""
    numbers = {
        name: _variable(name, default, "start with torchrun")
        for name, default in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1))
    }
    return numbers["WORLD_SIZE"]


def _join(backend: str) -> None:
    """Form the group of all processes when each of them has arrived."""
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    seconds = _variable(SECONDS_VARIABLE, SECONDS_TO_JOIN, "give a whole number of seconds")
    limit = timedelta(seconds=seconds)
    try:
        store, index, count = next(rendezvous("env://", timeout=limit))
        store.set(f"arrived {index}", "")
        store.wait([f"arrived {other}" for other in range(count)], limit)
        store.set_timeout(timedelta(seconds=SECONDS_TO_WAIT))
        dist.init_process_group(
            backend, store=store, rank=index, world_size=count, timeout=timedelta(seconds=SECONDS_TO_WAIT)
        )
    except (ValueError, RuntimeError) as error:  # a variable is missing or wrong, or nobody answers
        late = isinstance(error, dist.DistStoreError)
        reason = f"not all arrived within {seconds} s" if late else first_line(error).rstrip(".")
        raise ParallelError(
            f"the processes that WORLD_SIZE={os.environ['WORLD_SIZE']} announces cannot be joined ({reason}): start "
            f"them with torchrun, set {SECONDS_VARIABLE} if they need longer, or unset WORLD_SIZE"
        ) from error


@contextmanager
def launched() -> Iterator[Processes]:
    """Join the processes of ``torchrun`` while the block runs; without a launcher there is only this process.

    Tensors are sent between GPUs, one for each process, by their own library (NCCL for CUDA), and by gloo between CPUs.
    When a process fails, the others end after at most `SECONDS_TO_WAIT`.

    Raises:
        ParallelError: when another process has ended.
    """
    if _launched_count() < 2:
        yield ALONE
        return
    import torch.distributed as dist
    import torch.distributed.nn  # if imported later, its functions' default arguments keep the group alive

    backend, accelerator = "gloo", torch.accelerator.current_accelerator(check_available=True)
    library = dist.Backend.default_device_backend_map.get(accelerator.type) if accelerator else None
    if accelerator and library and dist.is_backend_available(library):
        backend = f"cpu:gloo,{accelerator.type}:{library}"
        torch.accelerator.set_device_index(int(os.environ.get("LOCAL_RANK", "0")) % torch.accelerator.device_count())
    _join(backend)
    processes = Processes(dist.get_rank(), dist.get_world_size())
    try:
        processes.patient_group = dist.new_group(timeout=timedelta(hours=HOURS_IN_FIRST))
        yield processes
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or any(word in str(error) for word in ("gloo", "CCL"))):
            raise
        # The first sentence of the library's error, without the source location at the start of gloo's.
        reason = re.sub(r"^\[\S*\] *", "", first_line(error)).partition(". ")[0]
        raise ParallelError(
            f"another process has ended ({reason}); saved files are complete: start all processes again to continue"
        ) from error
    finally:
        # A group lives as long as something refers to it, and a thread of its own that outlives the interpreter aborts.
        processes.patient_group = None
        gc.collect()
        dist.destroy_process_group()
