"""What a spectrum is, what every way of computing one offers, and the certificate each result carries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import MatrixError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Matrix = NDArray[np.float64]

LARGEST_RELATIVE_ERROR = 1e-9
"""A certificate off by more is refused: float64 sums of up to 10⁹ squares agree to about 1e-12."""


SMALLEST_SQUARE = 1e-280
"""‖A‖²_F between this and its inverse is a sum of squares that neither underflowed nor overflowed."""

SMALLEST_DRAWN = 1e-20
"""Where zeros are drawn on a logarithmic axis: far below the roundoff of any type."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The singular values of a T × M matrix, as it is and with each row's mean subtracted."""

    values: Matrix
    """(min(T, M),), descending, float64; from a sketch only the largest."""
    centered: Matrix
    """The same of the row-centred matrix."""
    shape: tuple[int, int]
    """(T, M)."""
    method: str
    """The `SpectrumMethod` that computed it."""
    frobenius_relative_error: float
    """The certificate: how far Σσ² + ρ² is from ‖A‖²_F (computed apart), raw or centred, whichever is worse."""
    residual: float = 0.0
    """ρ, the Frobenius norm of what ``values`` do not account for: zero unless the method is a sketch."""

    def cdf(self) -> tuple[Matrix, Matrix]:
        """Return the normalized singular values σ/σ_1, ascending, and the percentage of values up to each.

        Of a sketch only the values that were seen.
        """
        ascending = self.values[::-1]
        largest = ascending[-1] or 1.0
        size = min(self.shape)
        return ascending / largest, 100 * np.arange(size - ascending.size + 1, size + 1) / size

    def plot(self, ax: Axes | None = None, *, label: str | None = None) -> Axes:
        """Draw the cumulative percentage of normalized singular values (MoS paper, figure 1) into ``ax``.

        Values of zero lie to the left of every logarithmic axis: the curve starts at their percentage.
        """
        if ax is None:
            from matplotlib import pyplot as plt

            ax = plt.gca()
        normalized, percent = self.cdf()
        ax.step(np.maximum(normalized, SMALLEST_DRAWN), percent, where="post", label=label)
        ax.set_xscale("log")
        return ax


class SpectrumMethod(ABC):
    """A streamed singular-value computation: give it the rows in order, then ask for the spectrum.

    Subclasses are final, one a file, named as the literature names the algorithm.
    """

    name: ClassVar[str]
    fields: ClassVar[tuple[str, ...]]
    """Attributes that hold, as arrays, all that the rows given so far amount to: what is saved and combined."""
    rows_at_once: ClassVar[int] = 1
    """Rows that make one update worth its fixed cost; `measure` gathers them."""
    passes: ClassVar[int] = 1
    """How often the rows must come."""
    shared: ClassVar[tuple[str, ...]] = ()
    """Attributes that are summed over all processes before `end_pass`."""

    @abstractmethod
    def update(self, rows: Matrix) -> None:
        """Take the next rows: float64, (n, columns)."""

    @abstractmethod
    def merge(self, state: Mapping[str, Matrix]) -> None:
        """Take in what the same method made of other rows of the same matrix: its `state`."""

    @abstractmethod
    def finish(self) -> Spectrum:
        """Return the spectrum of all rows given, with its certificate."""

    def end_pass(self) -> None:  # noqa: B027 (methods of one pass have nothing to do)
        """Get ready for the next pass; not called after the last."""

    def state(self) -> dict[str, Matrix]:
        """Return what the rows so far amount to, by field."""
        return {name: getattr(self, name) for name in self.fields}

    def restore(self, state: Mapping[str, Matrix]) -> None:
        """Go back to a `state` saved before."""
        for name in self.fields:
            setattr(self, name, state[name])


class Totals(NamedTuple):
    """What every method sums beside its decomposition, read from an array of three."""

    rows: int
    squared_norm: float
    """‖A‖²_F."""
    squared_means: float
    """Σ of the squares of the rows' means."""

    @classmethod
    def of(cls, rows: Matrix) -> Matrix:
        """Return the totals of a block, as an array that adds up."""
        means = rows.mean(axis=1)
        # BLAS's dot on all entries: one pass, on all cores.
        return np.array([len(rows), np.vdot(rows, rows), means @ means])

    @classmethod
    def read(cls, sums: Matrix) -> Totals:
        """Return the totals that an array of sums holds."""
        return cls(int(sums[0]), float(sums[1]), float(sums[2]))


def check_scale(squared_norm: float) -> None:
    """Refuse a matrix whose squared entries leave float64's range, before anything is decomposed."""
    if squared_norm and not SMALLEST_SQUARE < squared_norm < 1 / SMALLEST_SQUARE:
        raise MatrixError(
            f"the matrix is too {'small' if squared_norm < 1 else 'large'} for its entries to be squared in float64: "
            "scale it; no rank depends on the scale"
        )


@contextmanager
def lapack(method: str) -> Iterator[None]:
    """Turn a decomposition that fails into a `MatrixError` that says what to do."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise MatrixError(f"the {method} decomposition failed ({error}); try another --method") from error


def certified(
    values: Matrix,
    centered: Matrix,
    *,
    shape: tuple[int, int],
    method: str,
    squared_norm: float,
    centered_squared_norm: float,
    residual: float = 0.0,
) -> Spectrum:
    """Return the spectrum, padded with zeros to min(T, M) values, when it passes its certificate.

    Args:
        values: singular values, not negative.
        centered: those of the row-centred matrix.
        shape: (T, M).
        method: name of the method that computed them.
        squared_norm: ‖A‖²_F, computed without the decomposition.
        centered_squared_norm: the same of the row-centred matrix.
        residual: Frobenius norm of what the values do not account for; values are padded only when it is zero.

    Raises:
        MatrixError: when values are not finite or Σσ² differs from ‖A‖²_F.
    """
    error = 0.0
    size = min(shape)
    padded = []
    for found, norm in ((values, squared_norm), (centered, centered_squared_norm)):
        if not np.isfinite(found).all():
            raise MatrixError(f"the {method} decomposition returned values that are not finite; try --method dense")
        # Relative to the raw norm: a centred matrix may be zero up to roundoff.
        with np.errstate(over="ignore"):
            energy = float((found**2).sum()) + residual**2
        error = max(error, abs(energy - norm) / (squared_norm or SMALLEST_SQUARE))
        ordered = np.sort(found)[::-1][:size]
        padded.append(ordered if residual else np.pad(ordered, (0, size - ordered.size)))
    # Centring projects one direction out: with T ≥ M the last value is zero, and what stands there is roundoff.
    padded[1][shape[1] - 1 :] = 0.0
    if error > LARGEST_RELATIVE_ERROR:
        raise MatrixError(
            f"the {method} decomposition broke its certificate: Σσ² differs from ‖A‖²_F by a factor of {error:.1e}; "
            "try another --method"
        )
    return Spectrum(padded[0], padded[1], shape, method, error, residual)
