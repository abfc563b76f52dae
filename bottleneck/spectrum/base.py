"""The base class of the methods that compute a spectrum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.devices import ask
from ..core.options import RANK
from ..errors import MatrixError, Parameter, first_line
from .arithmetic import Arithmetic, Spectra
from .host import Host
from .precision import EPS
from .values import Spectrum

LARGEST_RELATIVE_ERROR = 1e-9
"""Largest error of a certificate: float64 sums of up to 10⁹ squares agree to about 1e-12."""

SMALLEST_SQUARE = 1e-280
"""If ‖A‖²_F is between this and its inverse, its sum of squares neither underflowed nor overflowed."""


DEFAULT_WIDTH: int = RANK["width"].default
"""Width of a sketch: beyond any output layer's rank bound, within any machine's memory."""

SMALL = 1 << 24
"""Number of entries below which the dense method takes seconds, so a less accurate method has no advantage."""

QR_SHARE = 0.4
"""Rate of a tall QR factorization relative to a matrix product (measured with OpenBLAS, 50,257 × 770 float64)."""


class _BrokenCertificateError(Exception):
    """The computed values cannot be those of the matrix."""


FAILURES: tuple[type[Exception], ...] = (
    np.linalg.LinAlgError,
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
    torch.OutOfMemoryError,
    _BrokenCertificateError,
)
"""Errors of a decomposition that failed."""


@dataclass(frozen=True)
class Options:
    """Settings of a method beside the matrix's shape."""

    width: int = DEFAULT_WIDTH
    """Number k of dimensions of a sketch."""
    seed: int | tuple[int, ...] = 0
    """Seed of a sketch."""
    factor_columns: int = 0
    """Number r of columns of the matrix's thin factors, 0 without factors."""
    arithmetic: Arithmetic = field(default_factory=Host)
    """Arithmetic of the device to compute on."""


class Cost(NamedTuple):
    """What a method needs for a matrix."""

    memory: int
    """Peak memory in bytes, without the block of rows that it is given."""
    operations: float
    """Floating-point operations, in operations of a matrix product that take the same time."""
    largest_array: int
    """Number of entries of the largest array that it passes to LAPACK."""


class SpectrumMethod(ABC):
    """A streamed singular-value computation: `update` takes the rows in order, and `finish` returns the spectrum.

    Subclasses are final, one per file, and have the algorithm's name in the literature. `cost` needs no instance,
    which allocates memory. To add a method, write its file and enter it in `REGISTRY`.

    Args:
        columns: number of columns M.
        arithmetic: arithmetic of the device to compute on; by default the CPU's.
    """

    name: ClassVar[str]
    resolution: ClassVar[float] = EPS["float64"]
    """Least error of its singular values, relative to the largest."""
    from_factors: ClassVar[bool] = False
    """Whether it takes the rows of a thin factor instead of those of the matrix."""
    fields: ClassVar[tuple[str, ...]]
    """Names of the attributes, all tensors, that with the totals are the state after the rows so far."""
    passes: ClassVar[int] = 1
    """Number of passes over the rows."""
    shared: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that are summed over all processes before `end_pass`."""
    summed: ClassVar[bool] = False
    """Whether two states are combined by addition."""

    def __init__(self, columns: int, *, arithmetic: Arithmetic | None = None) -> None:
        self.columns = columns
        self.arithmetic = arithmetic or Host()
        self.rows_at_once = 1
        self._merged = torch.zeros(1)
        self._has_numbers = False
        self._totals = self.arithmetic.zeros(3)
        """Number of rows, ‖A‖²_F, and the sum of the squares of the rows' means."""

    @classmethod
    @abstractmethod
    def cost(cls, shape: tuple[int, int], options: Options) -> Cost:
        """Return what it needs for a T × M matrix."""

    @classmethod
    def suits(cls, shape: tuple[int, int], eps: float, options: Options) -> str:
        """Return why ``auto`` should take it for entries of roundoff ``eps``, or an empty string if it should not."""
        return ""

    @classmethod
    def variant(cls, shape: tuple[int, int]) -> type[SpectrumMethod]:
        """Return the class that computes the spectrum of a T × M matrix."""
        return cls

    @classmethod
    def build(cls, columns: Any, options: Options) -> SpectrumMethod:
        """Return the method, ready for rows of M columns; one `from_factors` takes Y, (M, r), in place of M."""
        return cls(columns, arithmetic=options.arithmetic)

    @property
    def relative_error(self) -> float:
        """Error of its singular values, relative to the largest; errors of merged blocks add up like a random walk."""
        return self.resolution * (1 + float(self._merged)) ** 0.5

    def update(self, rows: Any) -> None:
        """Take the next rows: (n, M), an array or tensor of real numbers.

        When an accelerator runs out of memory, the rows are split in halves.

        Raises:
            MatrixError: when memory is too small for a single row.
        """
        self._has_numbers = self._has_numbers or bool(rows.any())
        try:
            taken = self.arithmetic.take(rows)
            means, flat = taken.mean(1), taken.reshape(-1)
            totals = torch.stack([means.new_tensor(float(len(means))), flat @ flat, means @ means])
            self._add(taken)
            self._totals = self._totals + totals
        except torch.OutOfMemoryError as error:
            half = self.rows_at_once = self._half(rows, error)
            self.update(rows[:half])
            self.update(rows[half:])

    def _half(self, rows: Any, error: torch.OutOfMemoryError) -> int:
        """Return half the number of rows that were too many, with unused memory given back to the accelerator."""
        if len(rows) < 2:
            raise MatrixError(
                f"{self.arithmetic.device} has no memory left for one row beside the {self.name} method's matrices: "
                "use ",
                Parameter("device", "cpu"),
            ) from error
        ask(self.arithmetic.device, "empty_cache")
        return len(rows) // 2

    @abstractmethod
    def _add(self, rows: Tensor) -> None:
        """Take the next rows: float64, (n, M). If memory runs out, the state is unchanged."""

    def merge(self, state: Mapping[str, Tensor]) -> None:
        """Combine with the `state` of the same method after other rows of the same matrix."""
        self._merge(state)
        self._totals = self._totals + state["_totals"]

    @abstractmethod
    def _merge(self, state: Mapping[str, Tensor]) -> None:
        """Combine all but the totals."""

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
        if self._has_numbers and not SMALLEST_SQUARE < norms.squared < 1 / SMALLEST_SQUARE:
            raise MatrixError(
                f"the matrix is too {'small' if norms.squared < 1 else 'large'} for its entries to be squared in "
                "float64: scale it; no rank depends on the scale"
            )
        failures = []
        for arithmetic, careful in self.arithmetic.attempts():
            try:
                spectra = self._decompose(arithmetic, careful=careful)
                return certified(spectra, norms, method=self.name, relative_error=self.relative_error)
            except FAILURES as error:
                failures.append(first_line(error))
        raise MatrixError(
            f"the {self.name} decomposition failed ({'; then '.join(dict.fromkeys(failures))}); try another ",
            Parameter("method"),
        )

    def _norms(self) -> Norms:
        rows, squared, squared_means = self._totals.tolist()
        return Norms((int(rows), self.columns), squared, squared - self.columns * squared_means)

    def end_pass(self) -> None:  # noqa: B027 (methods of one pass have nothing to do)
        """Prepare the next pass; not called after the last pass."""

    def about(self) -> dict[str, Any]:
        """Return the settings that distinguish this computation from others of the same matrix."""
        return {"name": self.name, "fields": list(self.fields)}

    def state(self) -> dict[str, Tensor]:
        """Return the state after the rows so far, by attribute."""
        return {name: getattr(self, name) for name in (*self.fields, "_totals")}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a saved `state` of arrays or tensors."""
        for name in (*self.fields, "_totals"):
            setattr(self, name, self.arithmetic.take(state[name]))


class Norms(NamedTuple):
    """The norms that a spectrum is checked against."""

    shape: tuple[int, int]
    """(T, M)."""
    squared: float
    """‖A‖²_F, computed without the decomposition."""
    centered_squared: float
    """Squared norm of the row-centred matrix."""
    residual: float = 0.0
    """Frobenius norm of the part that the values do not cover."""


def certified(spectra: Spectra, norms: Norms, *, method: str, relative_error: float) -> Spectrum:
    """Return the spectrum, padded with zeros to min(T, M) values, when Σσ² + ρ² = ‖A‖²_F, raw and centred."""
    error = 0.0
    size, residual = min(norms.shape), norms.residual
    padded = []
    for values, norm in ((spectra.raw, norms.squared), (spectra.centered, norms.centered_squared)):
        if not np.isfinite(values).all():
            raise _BrokenCertificateError(f"{spectra.driver} returned values that are not finite")
        # The error is relative to the raw norm, because a centred matrix may be zero up to roundoff.
        with np.errstate(over="ignore"):
            energy = float((values**2).sum()) + residual**2
        error = max(error, abs(energy - norm) / (norms.squared or SMALLEST_SQUARE))
        ordered = np.sort(values)[::-1][:size]
        padded.append(ordered if residual else np.pad(ordered, (0, size - ordered.size)))
    # Centring projects out one direction: for T ≥ M the last value is zero, and its computed value is roundoff.
    padded[1][norms.shape[1] - 1 :] = 0.0
    if error > LARGEST_RELATIVE_ERROR:
        raise _BrokenCertificateError(f"of {spectra.driver}, Σσ² differs from ‖A‖²_F by a factor of {error:.1e}")
    scales = spectra.scales or (padded[0].max(initial=0.0), padded[1].max(initial=0.0))
    errors = [relative_error * float(scale) for scale in scales]
    return Spectrum(padded[0], padded[1], norms.shape, method, error, residual, spectra.driver, *errors)
