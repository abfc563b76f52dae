"""The same linear algebra by PyTorch alone, for a GPU; on the CPU it is `Host`'s oracle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..core.devices import has_float64
from .arithmetic import Arithmetic, Spectra, Values, symmetric, toward_ones, triangle_of
from .host import Host


class Accelerator(Arithmetic):
    """cuBLAS and cuSOLVER through PyTorch; when both routines of a decomposition fail, LAPACK on the CPU.

    Args:
        device: device to compute on.
    """

    def add_square(self, total: Tensor, rows: Tensor) -> None:
        """Add rowsᵀ rows to ``total``, both triangles: cuBLAS's product is faster than its ``syrk``."""
        total.addmm_(rows.T, rows)

    def eliminate(self, triangle: Tensor, rows: Tensor, *, triangular: bool = False) -> Tensor:
        """Return the triangle of both; see `Arithmetic.eliminate`."""
        return triangle_of(torch.cat([triangle, rows]))

    def gram_spectra(self, gram: Tensor, mixed: Tensor, squared_means: float, *, careful: bool) -> Spectra:
        """Return the eigenvalues of AᵀA and of CᵀC, reflected so that the second is a corner of the first."""
        whole, v = symmetric(gram.to(self.device)), mixed.to(self.device)
        columns = len(v)
        reflector = toward_ones(columns).to(self.device)
        product = 2 * (whole @ reflector)
        product -= (product @ reflector) * reflector
        matrix = whole.addr(reflector, product, alpha=-1).addr_(product, reflector, alpha=-1)
        border = -(columns**0.5) * (v - 2 * (reflector @ v) * reflector)
        border[0] = columns * squared_means
        matrix[0, :] = matrix[:, 0] = border
        raw, driver = self.eigenvalues(matrix, careful=careful)
        return Spectra(raw, np.append(self.eigenvalues(matrix[1:, 1:], careful=careful)[0], 0.0), driver)

    def triangle_spectra(self, triangle: Tensor, *, careful: bool) -> Spectra:
        """Return the singular values of R and of R without its first column."""
        R = triangle.to(self.device)
        return self.pair(R, R[:, 1:], careful=careful)

    def singular_values(self, matrix: Tensor, *, careful: bool) -> tuple[Values, str]:
        """Return the singular values by cuSOLVER's default routine, or by QR iteration (``gesvd``)."""
        driver = "gesvd" if careful and self.device.type == "cuda" else None
        values = torch.linalg.svdvals(matrix.to(self.device), driver=driver)
        return values.cpu().numpy(), f"{self.device.type} {driver or 'svdvals'}"

    def eigenvalues(self, matrix: Tensor, *, careful: bool) -> tuple[Values, str]:
        """Return the eigenvalues by cuSOLVER's ``syevd``; for a Gram matrix they equal its singular values."""
        if careful:
            return self.singular_values(symmetric(matrix), careful=True)
        values = torch.linalg.eigvalsh(matrix.to(self.device), UPLO="L")
        return values.cpu().numpy(), f"{self.device.type} syevd"

    def attempts(self) -> Iterator[tuple[Arithmetic, bool]]:
        """Yield this arithmetic's two choices of routines, then those of the CPU."""
        yield self, False
        yield self, True
        yield from Host().attempts()


def arithmetic_for(device: str | torch.device) -> Arithmetic:
    """Return the arithmetic of a device; of one without float64, the CPU's."""
    wanted = torch.device(device)
    return Host() if wanted.type == "cpu" or not has_float64(wanted) else Accelerator(wanted)
