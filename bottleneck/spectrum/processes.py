"""Several processes, one matrix: contexts are sharded, states are combined, process 0 reports."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from ..errors import MatrixError
from .base import Spectrum, SpectrumMethod

SECONDS_TO_WAIT = 600
"""How long a process waits for another's state before it gives up."""

HOURS_TO_DECOMPOSE = 24
"""How long the others wait for the first to turn the combined state into a spectrum."""


@dataclass
class Processes:
    """The processes that PyTorch's launcher started, or this one alone."""

    index: int = 0
    count: int = 1
    patient: Any = None
    """The process group that waits for `HOURS_TO_DECOMPOSE`."""

    @property
    def first(self) -> bool:
        """Whether this is the process that reports."""
        return self.index == 0

    def takes(self, block: int) -> bool:
        """Return whether a block, by its number, is this process's share: they go round."""
        return block % self.count == self.index

    def least(self, number: int) -> int:
        """Return the smallest of all processes' numbers, the same in all of them."""
        if self.count == 1:
            return number
        import torch.distributed as dist

        smallest = torch.tensor(number)
        with _partners():
            dist.all_reduce(smallest, dist.ReduceOp.MIN)
        return int(smallest)

    def finish(self, method: SpectrumMethod) -> Spectrum:
        """Combine the states of all processes, decompose in the first, and return the spectrum in all of them."""
        if self.count == 1:
            return method.finish()
        self.combine(method)
        import torch.distributed as dist

        outcome: list[Any] = [None]
        if self.first:
            try:
                outcome = [method.finish()]
            except MatrixError as error:
                outcome = [error]
        with _partners():
            dist.broadcast_object_list(outcome, src=0, group=self.patient)
        if isinstance(outcome[0], MatrixError):
            raise outcome[0]
        spectrum: Spectrum = outcome[0]
        return spectrum

    def sum_up(self, method: SpectrumMethod) -> None:
        """Give every process the sum of what a method shares between its passes."""
        if self.count > 1:
            with _partners():
                for name in method.shared:
                    setattr(method, name, _all_reduce(getattr(method, name)))

    def combine(self, method: SpectrumMethod) -> None:
        """Bring the states of all processes together in the first; the others' are left as they are.

        Gram matrices are summed by all-reduce; triangles are merged pairwise, in ⌈log₂ P⌉ rounds.
        """
        with _partners():
            if method.summed:
                method.restore({name: _all_reduce(tensor) for name, tensor in method.state().items()})
            else:
                self._merge_pairwise(method)

    def _merge_pairwise(self, method: SpectrumMethod) -> None:
        distance = 1
        while distance < self.count:
            if self.index % (2 * distance) == distance:
                for tensor in method.state().values():
                    _send(tensor, self.index - distance)
                return
            if self.index % (2 * distance) == 0 and self.index + distance < self.count:
                received = {name: _receive(self.index + distance, tensor) for name, tensor in method.state().items()}
                method.merge(received)
            distance *= 2


ALONE = Processes()


@contextmanager
def launched(*, seconds: float = SECONDS_TO_WAIT) -> Iterator[Processes]:
    """Join the processes of ``torchrun`` while the block runs; without a launcher this process is alone.

    Tensors travel by NCCL between GPUs, one a process, and by gloo between CPUs.

    A process that fails ends the others: they wait for it no longer than ``seconds``.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield ALONE
        return
    import torch.distributed as dist
    import torch.distributed.nn  # loaded later, its functions' defaults would keep the group alive

    # The launcher ends the others with SIGTERM; a Python handler would not run while they wait inside gloo.
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    backend = "gloo"
    if torch.cuda.is_available() and dist.is_nccl_available():
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
    processes = Processes(dist.get_rank(), dist.get_world_size())
    try:
        processes.patient = dist.new_group(timeout=timedelta(hours=HOURS_TO_DECOMPOSE))
        yield processes
    finally:
        # A group lives as long as something refers to it, and a thread of its own that outlives the interpreter aborts.
        processes.patient = None
        gc.collect()
        dist.destroy_process_group()
        signal.signal(signal.SIGTERM, handler)


def _all_reduce(tensor: Tensor) -> Tensor:
    import torch.distributed as dist

    dist.all_reduce(tensor)
    return tensor


def _send(tensor: Tensor, to: int) -> None:
    import torch.distributed as dist

    double = int(tensor.dtype == torch.float64)
    sizes = [double, tensor.ndim, *tensor.shape, *[0] * (2 - tensor.ndim)]
    dist.send(torch.tensor(sizes, device=tensor.device), to)
    dist.send(tensor.contiguous(), to)


def _receive(origin: int, like: Tensor) -> Tensor:
    """Return a partner's tensor; only its device is that of ``like``."""
    import torch.distributed as dist

    header = torch.zeros(4, dtype=torch.int64, device=like.device)
    dist.recv(header, origin)
    double, dimensions, *sizes = header.tolist()
    dtype = torch.float64 if double else torch.float32
    tensor = torch.zeros(sizes[:dimensions], dtype=dtype, device=like.device)
    dist.recv(tensor, origin)
    return tensor


@contextmanager
def _partners() -> Iterator[None]:
    """Turn a partner's silence into a sentence."""
    try:
        yield
    except RuntimeError as error:
        cause = str(error).splitlines()[0]
        raise MatrixError(f"another process of this computation is gone ({cause}); start it again") from error
