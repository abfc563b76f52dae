"""The span of output embeddings W, and rows of logits fitted in it without entries that stand for something else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..spectrum import EPS
from ..spectrum.centered import orthonormal_basis
from .divergences import SUMS

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

FAR = 5.0
"""Median deviations beyond which an entry of a fitted row is tried without: of normal residuals 1 in 1,300 is."""
ROUNDS, FALL = 20, 0.9
"""Most times that a row is fitted without more entries, and the share of what is left to which each has to bring it."""
ENTRY = 4.0
"""Ratio to the most by which an entry is off, from which it is not roundoff: the fit adds as much."""
POWERS = 9
"""Degree of the polynomial of a row's fitted logits that stands for a function of the logits, such as a soft cap."""


@dataclass(frozen=True)
class RowFits:
    """Rows fitted in the span of 1 and W."""

    coefficients: Matrix
    """(n, r + 1), in the orthonormal basis of the span."""
    residual: Matrix
    """(n, M), also of entries that were left out."""
    seen: Mask
    """(n, M), entries that were fitted."""
    outside: Matrix
    """(n,), norm of the residual over that of the row-centred row."""
    limit: Matrix
    """(n,), the same of roundoff at most."""
    moved: Matrix
    """(n,), root mean square of what roundoff makes of the entries at most."""
    spread: Matrix
    """(n,), how many times larger errors of the coefficients are for entries that are left out."""

    @property
    def left(self) -> Matrix:
        """Norm of the residual of the entries that were fitted, (n,)."""
        return np.asarray(np.linalg.norm(np.where(self.seen, self.residual, 0.0), axis=1))

    def roundoff(self, error: Matrix) -> Matrix:
        """Return the most that roundoff makes of single entries, (n, M), of which each is off by ``error`` at most."""
        return ENTRY * (error + self.moved[:, None])

    @property
    def fits(self) -> Mask:
        """Whether roundoff explains what is left of each row, (n,)."""
        return self.outside <= self.limit


class Span:
    """An orthonormal basis of the span of 1 and the columns of W, (M, d), and of one more vector, if there is one."""

    def __init__(self, W: Matrix, eps: float) -> None:
        self._eps, self._sizes = eps, np.abs(W).T @ np.abs(W)
        columns, first = orthonormal_basis(torch.from_numpy(W), scaled=True)
        columns, second = orthonormal_basis(columns)  # a Gram matrix loses digits, and the second one has none to lose
        self.to_hidden = (first @ second).numpy()
        self.basis = np.column_stack([np.full(len(W), len(W) ** -0.5), columns.numpy()])

    def with_vector(self, vector: Matrix) -> Span:
        """Return the span with one more vector, orthogonal to it and of norm 1, as the last of the basis."""
        span = object.__new__(Span)
        span.__dict__.update(self.__dict__, basis=np.column_stack([self.basis, vector]))
        return span

    def hidden(self, fit: RowFits) -> Matrix:
        """Return the context vectors, (n, d)."""
        return fit.coefficients[:, 1 : self.to_hidden.shape[1] + 1] @ self.to_hidden.T

    def fit(self, rows: Matrix, seen: Mask, error: Matrix) -> RowFits:
        """Fit rows, (n, M), by least squares over the entries that are seen; each is off by ``error`` at most."""
        all_rows = rows - np.nanmedian(np.where(seen, rows, np.nan), 1, keepdims=True)
        rows, tokens = np.where(seen, all_rows, 0.0), seen.sum(1)
        coefficients, spread = rows @ self.basis, np.ones(len(rows))
        residual = rows - coefficients @ self.basis.T
        for row in np.flatnonzero(tokens < rows.shape[1]):
            coefficients[row], spread[row] = self._fit_one(rows[row], seen[row], coefficients[row], residual[row])
        residual = all_rows - coefficients @ self.basis.T
        centered = np.where(seen, rows - rows.sum(1, keepdims=True) / tokens[:, None], 0.0)
        norms = np.linalg.norm(centered, axis=1)
        hidden = np.abs(coefficients[:, 1 : self.to_hidden.shape[1] + 1] @ self.to_hidden.T)
        product = np.sqrt(len(self._sizes)) * self._eps / 2 * np.sqrt(((hidden @ self._sizes) * hidden).sum(1))
        moved = np.linalg.norm(np.where(seen, error, 0.0), axis=1) + product + SUMS * norms
        norms = np.maximum(norms, np.finfo(np.float64).tiny)
        outside = np.linalg.norm(np.where(seen, residual, 0.0), axis=1)
        return RowFits(
            coefficients, residual, seen.copy(), outside / norms, moved / norms, moved / np.sqrt(tokens), spread
        )

    def _fit_one(self, row: Matrix, seen: Mask, coefficients: Matrix, residual: Matrix) -> tuple[Matrix, float]:
        """Return the coefficients of a row without its unseen entries, and by how much they lose in accuracy.

        ``coefficients`` and ``residual`` are those of the whole row, whose unseen entries are 0.
        """
        unseen = self.basis[~seen]
        if len(unseen) <= unseen.shape[1]:  # an unknown for each unseen entry: E(I − XXᵀ)Eᵀ is small
            values, vectors = np.linalg.eigh(np.eye(len(unseen)) - unseen @ unseen.T)
            kept = values > EPS["float64"] ** 0.5
            added = (vectors[:, kept] / values[kept]) @ (vectors[:, kept].T @ residual[~seen])
            return coefficients - unseen.T @ added, _spread(values)
        some = self.basis[seen]
        values, vectors = np.linalg.eigh(some.T @ some)
        kept = values > EPS["float64"] ** 0.5
        inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
        found = inverse @ (some.T @ row[seen])
        return found + inverse @ (some.T @ (row[seen] - some @ found)), _spread(values)

    def fit_most(self, rows: Matrix, seen: Mask, error: Matrix) -> RowFits:
        """Fit rows, and those that do not fit without the entries that are far from the fit, as long as that helps.

        At least half of the entries beyond those that any row would fit remain, and those that fit after all come back.
        """
        best = self.fit(rows, seen, error)
        least = (seen.sum(1) + self.basis.shape[1]) / 2
        active = edited = np.flatnonzero(~best.fits)
        for _ in range(ROUNDS):
            last = _some(best, active)
            level = np.where(last.seen, last.residual, np.nan)
            away = np.abs(level - np.nanmedian(level, 1, keepdims=True))
            far = np.maximum(FAR * np.nanmedian(away, 1, keepdims=True), last.roundoff(error[active]))
            near = last.seen & ~(away > far)
            fewer = (near.sum(1) < last.seen.sum(1)) & (near.sum(1) >= least[active])
            active, near = active[fewer], near[fewer]
            if not active.size:
                break
            found = self.fit(rows[active], near, error[active])
            better = found.left < FALL * last.left[fewer]
            _put(best, active[better], _some(found, better))
            active = active[better & ~found.fits]
        edited = edited[best.fits[edited]]
        again = _some(best, edited)
        near = seen[edited] & (np.abs(again.residual) <= again.roundoff(error[edited]))
        found = self.fit(rows[edited], near, error[edited])
        _put(best, edited[found.fits], _some(found, found.fits))
        return best


def _put(fit: RowFits, rows: Any, part: RowFits) -> None:
    for field in fields(RowFits):
        getattr(fit, field.name)[rows] = getattr(part, field.name)


def _some(fit: RowFits, rows: Any) -> RowFits:
    return RowFits(**{field.name: getattr(fit, field.name)[rows] for field in fields(RowFits)})


def _spread(values: Matrix) -> float:
    """Return how many times larger errors of the coefficients are at most; infinite if some are not determined."""
    return float(values[0] ** -0.5) if values[0] > EPS["float64"] ** 0.5 else np.inf


def explained(span: Span, fit: RowFits) -> Matrix:
    """Return the share of the residual's square that a smooth function of the fitted logits explains, (n,)."""
    shares = []
    for coefficients, residual, seen in zip(fit.coefficients, fit.residual, fit.seen, strict=True):
        fitted = (span.basis[:, 1:] @ coefficients[1:])[seen]
        powers = np.polynomial.legendre.legvander(2 * (fitted - fitted.min()) / np.ptp(fitted) - 1, POWERS)[:, 2:]
        some = span.basis[seen]
        powers -= some @ (some.T @ powers)
        known = np.linalg.qr(powers)[0].T @ residual[seen]
        shares.append(float((known**2).sum() / (residual[seen] ** 2).sum()))
    return np.array(shares)
