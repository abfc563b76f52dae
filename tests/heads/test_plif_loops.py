"""The compiled loops of a PLIF against torch's kernels, on one thread and on several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from softmax_bottleneck.heads import plif as plif_module
from softmax_bottleneck.heads import plif_loops
from softmax_bottleneck.heads.plif import PLIF


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """So many threads, from 100 numbers each on."""
    monkeypatch.setattr(plif_loops, "SMALLEST_SHARE", 100)
    monkeypatch.setattr(plif_loops.torch, "get_num_threads", lambda: request.param)
    return int(request.param)


def _found(plif: PLIF, inputs: Tensor, upstream: Tensor) -> list[Tensor]:
    leaf = inputs.clone().requires_grad_()
    values = plif(leaf)
    return [values.detach(), *torch.autograd.grad(values, [leaf, plif.v], upstream)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0,), (1,), (99,), (3, 341), (7, 5, 29)])
@pytest.mark.usefixtures("threads")
def test_as_by_kernels(dtype: torch.dtype, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    plif, eps = PLIF(knots=60, interval=3.0).to(dtype), torch.finfo(dtype).eps
    inputs, upstream = 3 * torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    ours = _found(plif, inputs, upstream)
    monkeypatch.setattr(plif_module, "_has_loops", lambda _: False)
    theirs = _found(plif, inputs, upstream)
    assert [one.dtype for one in ours] == [dtype] * 3
    for one, other, size in zip(ours, theirs, (20.0, 5.0, 3.0 * max(1, inputs.numel())), strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=0, atol=4 * eps * size)


def test_the_threads_share_all_numbers(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    loop = plif_loops._values
    monkeypatch.setattr(plif_loops, "_values", lambda x, *rest: (len(x) and seen.append(len(x)), loop(x, *rest))[1])
    plif = PLIF(knots=10, interval=3.0)
    with torch.no_grad():
        plif(torch.randn(1003))
    assert sum(seen) == 1003
    assert len(seen) == threads
    assert max(seen) - min(seen) <= 1


@pytest.mark.usefixtures("threads")
def test_a_matrix_laid_out_by_columns() -> None:
    torch.manual_seed(0)
    plif, inputs, upstream = PLIF(knots=60, interval=3.0), torch.randn(30, 40), torch.randn(30, 40)
    once = _found(plif, inputs, upstream)
    turned = _found(plif, inputs.T.contiguous().T, upstream.T.contiguous().T)
    assert all(map(torch.equal, once, turned))


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
