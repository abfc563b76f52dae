"""What a spectrum is, and what every way of computing one offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import MatrixError
from .arithmetic import Arithmetic, Spectra
from .host import Host

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Matrix = NDArray[np.float64]

LARGEST_RELATIVE_ERROR = 1e-9
"""A certificate off by more is refused: float64 sums of up to 10⁹ squares agree to about 1e-12."""

SMALLEST_SQUARE = 1e-280
"""‖A‖²_F between this and its inverse is a sum of squares that neither underflowed nor overflowed."""

SMALLEST_DRAWN = 1e-20
"""Where zeros are drawn on a logarithmic axis: far below the roundoff of any type."""


class _BrokenCertificateError(Exception):
    """Values that cannot be the matrix's."""


FAILURES: tuple[type[Exception], ...] = (
    np.linalg.LinAlgError,
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
    torch.OutOfMemoryError,
    _BrokenCertificateError,
)
"""How a decomposition says that it failed."""


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
    driver: str = ""
    """The LAPACK or cuSOLVER routines at the end of it."""

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

    Args:
        columns: M.
        arithmetic: where to compute; on the CPU unless said otherwise.
    """

    name: ClassVar[str]
    fields: ClassVar[tuple[str, ...]]
    """Attributes that hold, as tensors, all that the rows given so far amount to: what is saved and combined."""
    passes: ClassVar[int] = 1
    """How often the rows must come."""
    shared: ClassVar[tuple[str, ...]] = ()
    """Attributes that are summed over all processes before `end_pass`."""
    summed: ClassVar[bool] = False
    """Whether combining two states is adding them."""

    def __init__(self, columns: int, *, arithmetic: Arithmetic | None = None) -> None:
        self.columns = columns
        self.arithmetic = arithmetic or Host()
        self.rows_at_once = 1
        self._totals = self.arithmetic.zeros(3)

    def update(self, rows: Any) -> None:
        """Take the next rows: (n, M), an array or tensor of real numbers.

        Where an accelerator's memory does not hold what this takes, the rows are taken by halves.

        Raises:
            MatrixError: when it does not even hold a single row.
        """
        try:
            self._add(self.arithmetic.take(rows))
        except torch.OutOfMemoryError as error:
            if len(rows) < 2:
                raise MatrixError(
                    f"{self.arithmetic.device} has no memory left for one row beside the {self.name} method's "
                    "matrices: use --device cpu"
                ) from error
            torch.cuda.empty_cache()
            self.rows_at_once = half = len(rows) // 2
            self.update(rows[:half])
            self.update(rows[half:])

    @abstractmethod
    def _add(self, rows: Tensor) -> None:
        """Take the next rows: float64, (n, M). Out of memory, the state is as it was."""

    @abstractmethod
    def merge(self, state: Mapping[str, Tensor]) -> None:
        """Take in what the same method made of other rows of the same matrix: its `state`."""

    @abstractmethod
    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        """Return the singular values of all rows given, in any order."""

    def finish(self) -> Spectrum:
        """Return the spectrum of all rows given, with its certificate.

        A decomposition that fails, or whose certificate does not hold, is tried again by the arithmetic's next choice
        of routines.

        Raises:
            MatrixError: when every choice failed, or for numbers whose squares leave float64's range.
        """
        norms = self._norms()
        check_scale(norms.squared)
        failures = []
        for arithmetic, careful in self.arithmetic.attempts():
            try:
                return certified(self._decompose(arithmetic, careful=careful), norms, method=self.name)
            except FAILURES as error:
                failures.append(str(error).splitlines()[0])
        raise MatrixError(
            f"the {self.name} decomposition failed ({'; then '.join(dict.fromkeys(failures))}); try another --method"
        )

    def _norms(self) -> Norms:
        totals = Totals.read(self._totals)
        return Norms((totals.rows, self.columns), totals.squared_norm, totals.centered_squared_norm(self.columns))

    def end_pass(self) -> None:  # noqa: B027 (methods of one pass have nothing to do)
        """Get ready for the next pass; not called after the last."""

    def state(self) -> dict[str, Tensor]:
        """Return what the rows so far amount to, by field."""
        return {name: getattr(self, name) for name in self.fields}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a `state` saved before, of arrays or tensors."""
        for name in self.fields:
            setattr(self, name, self.arithmetic.take(state[name]))


class Totals(NamedTuple):
    """What every method sums beside its decomposition, read from a tensor of three."""

    rows: int
    squared_norm: float
    """‖A‖²_F."""
    squared_means: float
    """Σ of the squares of the rows' means."""

    @classmethod
    def of(cls, rows: Tensor, means: Tensor | None = None) -> Tensor:
        """Return the totals of a block, as a tensor that adds up."""
        if means is None:
            means = rows.mean(1)
        flat = rows.reshape(-1)
        return torch.stack([rows.new_tensor(float(len(rows))), flat @ flat, means @ means])

    @classmethod
    def read(cls, sums: Tensor) -> Self:
        """Return the totals that a sum of them holds."""
        rows, squared_norm, squared_means = sums.tolist()
        return cls(int(rows), squared_norm, squared_means)

    def centered_squared_norm(self, columns: int) -> float:
        """Return ‖A (I − 11ᵀ/M)‖²_F."""
        return self.squared_norm - columns * self.squared_means


class Norms(NamedTuple):
    """What a spectrum is held against."""

    shape: tuple[int, int]
    """(T, M)."""
    squared: float
    """‖A‖²_F, computed without the decomposition."""
    centered_squared: float
    """The same of the row-centred matrix."""
    residual: float = 0.0
    """Frobenius norm of what the values do not account for."""


def check_scale(squared_norm: float) -> None:
    """Refuse a matrix whose squared entries leave float64's range, before anything is decomposed."""
    if squared_norm and not SMALLEST_SQUARE < squared_norm < 1 / SMALLEST_SQUARE:
        raise MatrixError(
            f"the matrix is too {'small' if squared_norm < 1 else 'large'} for its entries to be squared in float64: "
            "scale it; no rank depends on the scale"
        )


def certified(found: Spectra, norms: Norms, *, method: str) -> Spectrum:
    """Return the spectrum, padded with zeros to min(T, M) values, when Σσ² + ρ² = ‖A‖²_F, raw and centred."""
    error = 0.0
    size, residual = min(norms.shape), norms.residual
    padded = []
    for values, norm in ((found.raw, norms.squared), (found.centered, norms.centered_squared)):
        if not np.isfinite(values).all():
            raise _BrokenCertificateError(f"{found.driver} returned values that are not finite")
        # Relative to the raw norm: a centred matrix may be zero up to roundoff.
        with np.errstate(over="ignore"):
            energy = float((values**2).sum()) + residual**2
        error = max(error, abs(energy - norm) / (norms.squared or SMALLEST_SQUARE))
        ordered = np.sort(values)[::-1][:size]
        padded.append(ordered if residual else np.pad(ordered, (0, size - ordered.size)))
    # Centring projects one direction out: with T ≥ M the last value is zero, and what stands there is roundoff.
    padded[1][norms.shape[1] - 1 :] = 0.0
    if error > LARGEST_RELATIVE_ERROR:
        raise _BrokenCertificateError(f"of {found.driver}, Σσ² differs from ‖A‖²_F by a factor of {error:.1e}")
    return Spectrum(padded[0], padded[1], norms.shape, method, error, residual, found.driver)
