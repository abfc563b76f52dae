r"""The context vectors of least KL (Kullback-Leibler) divergence for fixed embeddings, with a certificate.

For fixed W and one target p the cross entropy :math:`F(h) = \log Z(h) - h·E_p[w] - E_p[b]` is convex. Its minimum is
the maximum entropy (relative to the bias) of the distributions R with :math:`E_R[w] = E_p[w]` (Ganea et al. 2019,
theorem 2), so each such R gives a lower bound. A Newton step gives one: with q = Q_h, its covariance C of the
embeddings and the step :math:`δ = C^{-1}(E_q[w] - E_p[w])`,

.. math:: R_x = q_x (1 - t_x), \quad t_x = (w_x - E_q[w])·δ

sums to one and has the required mean. Where no t exceeds 1, the gap between F(h) and its bound is KL(R ‖ q), a sum
without cancellation. p itself is such an R, so the gap is at most KL(p ‖ q).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.checks import check_above_zero, typed
from ..core.devices import exact_device
from ..errors import MatrixError
from ..spectrum import EPS
from ..spectrum.centered import orthonormal_basis
from .inputs import log_distributions, real_matrix, real_vector

WORK_ENTRIES = 1 << 23
"""Entries of the centred embeddings, one set for each context, in memory at a time."""
RIDGE = 1e-14
"""Ridge added to the covariance, relative to its mean eigenvalue, so that a singular one has a Cholesky factor."""
SLACK = 1e-14
"""Relative roundoff of a cross entropy in float64; a smaller increase does not end a line search."""
SUFFICIENT = 0.25
"""Share of the linearly predicted decrease that a step must attain (Armijo's rule); a quadratic attains a half."""
HALVINGS = 60
"""Largest number of halvings of a step, enough for a spread of t of 2⁶⁰."""


@dataclass(frozen=True, eq=False)
class Attainable:
    """The best context vectors for fixed embeddings."""

    contexts: Tensor
    """H, float64, (n, D), of least norm."""
    kl: Tensor
    """KL(p ‖ Q_h) at ``contexts`` in nats, float64, (n,)."""
    gap: Tensor
    """Upper bound on the difference between ``kl`` and its minimum in nats, float64, (n,)."""
    steps: int
    """Largest number of Newton steps of any context."""


@typed
def attainable(
    log_targets: Any,
    weight: Any,
    *,
    bias: Any = None,
    start: Any = None,
    tolerance: float = 1e-10,
    max_steps: int = 200,
) -> Attainable:
    """Minimize KL(p ‖ Q_h) over h for each target by damped Newton, until the duality gap closes.

    Args:
        log_targets: log p, (n, M), each row's logsumexp 0 within the roundoff of its type; −∞ for a probability of 0.
        weight: W, (M, D).
        bias: b, (M,).
        start: (n, D) initial context vectors; a row is used where it is better than zero. The result is never worse.
        tolerance: largest gap, nats.
        max_steps: largest number of Newton steps; the result of a context that needs more has a larger gap.

    Returns:
        Tensors, on the device of ``log_targets``.
    """
    check_above_zero(tolerance=tolerance)
    targets, embeddings = log_distributions(log_targets), real_matrix(weight, "the embeddings")
    (n, M), D = targets.shape, embeddings.shape[1]
    if len(embeddings) != M:
        raise MatrixError(f"targets of {M} tokens do not fit embeddings of {len(embeddings)}: give one row each")
    biases = np.zeros(M) if bias is None else real_vector(bias, M, "the bias")
    device = exact_device(log_targets.device) if isinstance(log_targets, Tensor) else torch.device("cpu")
    log_p, W, b = (torch.from_numpy(each).to(device) for each in (targets, embeddings, biases))
    # Coordinates in orthonormal directions of the centred embeddings improve the problem's condition.
    X, back = (each * W.shape[0] ** 0.5 for each in orthonormal_basis(W, least=max(W.shape) * EPS["float64"]))
    a = log_p.new_zeros(len(log_p), X.shape[1])
    if start is not None:
        initial = torch.from_numpy(real_matrix(start, "the initial context vectors")).to(device)
        if initial.shape != (n, D):
            raise MatrixError(f"initial context vectors must have shape ({n}, {D}), not {tuple(initial.shape)}")
        driver = "gelsd" if back.device.type == "cpu" else None
        initial = torch.linalg.lstsq(back, initial.T, driver=driver).solution.T
        is_better = _divergence(log_p, X, b, initial) < _divergence(log_p, X, b, a)
        a = torch.where(is_better.unsqueeze(1), initial, a)
    kl, gap, steps = _minimize(log_p, X, b, a, tolerance, max_steps)
    return Attainable(a @ back.T, kl, gap, steps)


def _divergence(log_p: Tensor, X: Tensor, b: Tensor, a: Tensor) -> Tensor:
    return torch.linalg.vecdot(log_p.exp(), log_p - torch.log_softmax(torch.addmm(b, a, X.T), 1))


def _minimize(
    log_p: Tensor, X: Tensor, b: Tensor, a: Tensor, tolerance: float, max_steps: int
) -> tuple[Tensor, Tensor, int]:
    """Move ``a`` to the minima; return the divergences there, the gaps, and the steps taken."""
    kl = _divergence(log_p, X, b, a)
    gap = kl.clone() if X.shape[1] else torch.zeros_like(kl)  # without directions nothing can be gained
    at_once = max(1, WORK_ENTRIES // max(1, X.numel()))
    steps = 0
    while X.shape[1] and steps < max_steps:
        active = (gap > tolerance).nonzero().squeeze(1)
        if not len(active):
            break
        stuck = True
        for some in active.split(at_once):
            a[some], kl[some], gap[some], moved = _newton(log_p[some], X, b, a[some], kl[some], tolerance)
            stuck = stuck and not moved
        steps += 1
        if stuck:
            break
    return kl, gap, steps


def _solve(covariance: Tensor, gradient: Tensor) -> Tensor:
    """Return δ with C δ = g: (n, r, r), (n, r) → (n, r, 1); a ridge is added to C, larger where it is singular."""
    size = covariance.shape[1]
    diagonal = torch.eye(size).to(covariance)
    ridge = RIDGE * torch.einsum("nii->n", covariance) / size + torch.finfo(torch.float64).tiny
    factor, failed = torch.linalg.cholesky_ex(covariance + ridge.view(-1, 1, 1) * diagonal)
    while bool(failed.any()) and float(ridge.max()) < math.inf:
        ridge = torch.where(failed > 0, 10 * ridge, ridge)
        factor, failed = torch.linalg.cholesky_ex(covariance + ridge.view(-1, 1, 1) * diagonal)
    return torch.cholesky_solve(gradient.unsqueeze(2), factor)


def _newton(
    log_p: Tensor, X: Tensor, b: Tensor, a: Tensor, kl: Tensor, tolerance: float
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Compute the gaps of some contexts, and take one damped step from those above the tolerance.

    Along δ the curvature of F changes by at most the factor e^(s·B), B the spread of t, so a step of log(1 + B)/B
    always descends (Bach 2010, Self-concordant analysis for logistic regression); longer steps are tried first.
    """
    q, p = torch.softmax(torch.addmm(b, a, X.T), 1), log_p.exp()
    mean = q @ X
    gradient = (q - p) @ X
    centred = X - mean.unsqueeze(1)
    weighted = centred * q.sqrt().unsqueeze(2)
    covariance = weighted.transpose(1, 2) @ weighted
    delta = _solve(covariance, gradient)
    t = (centred @ delta).squeeze(2)
    # The error of R's mean, times the distance of the minimum, estimated as twice the norm of this vector.
    missed = (gradient - (covariance @ delta).squeeze(2)).norm(dim=1) * a.norm(dim=1) * 2
    certificate = torch.linalg.vecdot(q, torch.xlogy(1 - t, 1 - t) + t) + missed
    gap = torch.where((t.amax(1) <= 1) & certificate.isfinite(), torch.minimum(certificate.clamp(min=0), kl), kl)
    decrease = torch.linalg.vecdot(gradient, delta.squeeze(2))
    size = torch.where((gap > tolerance) & decrease.isfinite(), 1.0, 0.0).double()
    direction = delta.squeeze(2).nan_to_num(0, 0, 0)
    spread = (t.amax(1) - t.amin(1)).nan_to_num()
    safe = torch.where(spread > 0, torch.log1p(spread) / spread, 1.0) * size
    for _ in range(HALVINGS):
        moved = a - size.unsqueeze(1) * direction
        moved_kl = _divergence(log_p, X, b, moved)
        too_far = ~(moved_kl <= kl - SUFFICIENT * size * decrease.nan_to_num() + SLACK * (1 + kl)) & (size > safe)
        if not bool(too_far.any()):
            break
        size = torch.where(too_far, torch.maximum(size / 2, safe), size)
    better = (moved_kl <= kl + SLACK * (1 + kl)) & (size > 0)
    moved = torch.where(better.unsqueeze(1), moved, a)
    return moved, torch.where(better, moved_kl, kl), gap, bool(better.any())
