"""The update of a Gram matrix of many columns, strip by strip."""

from __future__ import annotations

import pytest
import torch

from softmax_bottleneck.spectrum import host


@pytest.mark.parametrize("columns", [3, 8, 19])
def test_strips_add_to_the_lower_triangle_alone(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "SYRK_COLUMNS", 2)
    monkeypatch.setattr(host, "AT_ONCE", 4)
    rows = torch.randn(7, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    total = torch.arange(columns**2, dtype=torch.float64).reshape(columns, columns)
    expected = total + torch.einsum("ti,tj->ij", rows, rows).tril()
    host.Host().add_square(total, rows)
    torch.testing.assert_close(total, expected, rtol=4 * torch.finfo(torch.float64).eps, atol=1e-13)
