"""Output embeddings W less their mean row, of which everything that a softmax can express is made."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.devices import exact_device
from ..core.full_precision import full_precision
from .arithmetic import triangle_of_blocks

ROWS = 8192
"""Rows of W that are taken at once."""


def orthonormal_basis(weight: Tensor, *, least: float | None = None, scaled: bool = False) -> tuple[Tensor, Tensor]:
    """Return an orthonormal basis of the columns of C = (I − 11ᵀ/M) W, (M, r) in W's type, and B, (d, r): it is C B.

    They are on W's `exact_device`, and come from a Cholesky factor of CᵀC in float64. If C is not clearly of full rank,
    they come from its singular value decomposition, and r is its rank.

    Args:
        weight: W, (M, d).
        least: smallest singular value over the largest that counts; by default the roundoff of W's type times √d.
        scaled: whether the columns count at one size, because hidden states may make up for theirs. B is then not of
            least norm, and a column that is constant but for its roundoff counts as zero.
    """
    with full_precision():
        weight = weight.detach().to(exact_device(weight.device))
        mean, blocks = weight.mean(0, dtype=torch.float64), weight.split(ROWS)
        gram = sum(((rows - mean).T @ (rows - mean) for rows in blocks), torch.zeros(()))
        squares, eps = gram.diagonal(), torch.finfo(weight.dtype).eps
        constant = max(eps, 8 * torch.finfo(torch.float64).eps)
        varies = squares > constant**2 * (squares + len(weight) * mean**2)
        unit = torch.where(varies, squares, 1.0).rsqrt() * varies if scaled else torch.ones_like(squares)
        gram = unit[:, None] * gram * unit
        factor, failed = torch.linalg.cholesky_ex(gram, upper=True)
        spread = factor.diagonal().abs()
        if not int(failed) and float(spread.min()) > torch.finfo(torch.float64).eps ** 0.25 * float(spread.max()):
            inverse = torch.linalg.solve_triangular(factor, torch.eye(len(gram)).to(factor), upper=True)
        else:
            values, directions = torch.linalg.svd(triangle_of_blocks((rows - mean) * unit for rows in blocks))[1:]
            roundoff = max(eps, torch.finfo(torch.float64).eps ** 0.5)
            limit = roundoff * math.sqrt(len(gram)) if least is None else least
            used = torch.nonzero(values > limit * values[:1]).squeeze(1)
            inverse = directions[used].T / values[used]
        inverse = unit[:, None] * inverse
        return torch.cat([((rows - mean) @ inverse).to(weight.dtype) for rows in blocks]), inverse
