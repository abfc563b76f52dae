"""The compiled loops of a PLIF against torch's kernels, on one thread and on several, and those threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from softmax_bottleneck.heads import plif as plif_module
from softmax_bottleneck.heads import plif_loops
from softmax_bottleneck.heads.plif import PLIF
from softmax_bottleneck.heads.plif_loops import in_parallel


def _found(plif: PLIF, inputs: Tensor, upstream: Tensor) -> list[Tensor]:
    leaf = inputs.clone().requires_grad_()
    values = plif(leaf)
    return [values.detach(), *torch.autograd.grad(values, [leaf, plif.v], upstream)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0,), (1,), (99,), (3, 341), (7, 5, 29)])
@pytest.mark.parametrize("threads", [1, 5])
def test_as_by_kernels(dtype: torch.dtype, shape: tuple[int, ...], threads: int, monkeypatch: Any) -> None:
    """Also where a thread gets 100 numbers, and from a matrix laid out by columns."""
    monkeypatch.setattr(plif_loops, "SMALLEST_SHARE", 100)
    monkeypatch.setattr(plif_loops.torch, "get_num_threads", lambda: threads)
    torch.manual_seed(0)
    plif, eps = PLIF(knots=60, interval=3.0).to(dtype), torch.finfo(dtype).eps
    inputs, upstream = 3 * torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    ours = _found(plif, inputs, upstream)
    by_columns = _found(plif, inputs.T.contiguous().T, upstream.T.contiguous().T) if len(shape) == 2 else ours
    assert all(map(torch.equal, by_columns, ours))
    monkeypatch.setattr(plif_module, "_has_loops", lambda _: False)
    theirs = _found(plif, inputs, upstream)
    assert [one.dtype for one in ours] == [dtype] * 3
    for one, other, size in zip(ours, theirs, (20.0, 5.0, 3.0 * max(1, inputs.numel())), strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=0, atol=4 * eps * size)


def test_without_a_place_for_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception of numba when neither the package's folder nor the user's cache is writable."""
    njit = plif_loops.numba.njit

    def homeless(**options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function '_values': no locator available for file 'plif_loops.py'")
        return njit(**options)

    monkeypatch.setattr(plif_loops.numba, "njit", homeless)
    table, out = np.array([0 + 1j, 2 + 3j]), np.zeros(2)
    plif_loops._compiled(plif_loops._values.py_func)(np.array([-2.0, 1.0]), table, 2.0, 2.0, out)
    assert out.tolist() == [0.0, 5.0]


@pytest.fixture(params=[True, False], ids=["OpenMP", "none"])
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr(plif_loops, "_runtime", lambda: None)
    return bool(request.param) and plif_loops._runtime() is not None


@pytest.mark.parametrize("count", [0, 1, 3, 17])
@pytest.mark.usefixtures("runtime")
def test_each_piece_is_done_once_and_an_error_is_raised_here(count: int) -> None:
    done: list[int] = []
    in_parallel([lambda number=number: done.append(number) for number in range(count)])  # type: ignore[misc]
    assert sorted(done) == list(range(count))

    def fail() -> None:
        raise FloatingPointError("here")

    with pytest.raises(FloatingPointError, match="here"):
        in_parallel([*[lambda: None] * count, fail])


def test_pieces_run_at_the_same_time(runtime: bool) -> None:
    """Two that wait for each other finish only together; without a runtime neither waits."""
    meeting = threading.Barrier(2)

    def meet() -> None:
        if runtime:
            meeting.wait(timeout=30)

    in_parallel([meet, meet])


def test_work_that_was_not_done_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal before the first line of a member; C code drops its exception."""

    class Deaf:
        @staticmethod
        def GOMP_parallel(*_: object) -> None:
            pass

    monkeypatch.setattr(plif_loops, "_runtime", lambda: Deaf)
    with pytest.raises(KeyboardInterrupt):
        in_parallel([lambda: None, lambda: None])
