"""The singular values of one matrix: their cumulative distribution, their table, and their figure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.json_file import Count, Magnitude
from ..errors import MatrixError
from .precision import EPS

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from matplotlib.axes import Axes

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Limits:
    """What a figure marks beside the singular values; ``None`` where it is not known."""

    tolerance: Magnitude | None = None
    """Value that a singular value of the raw matrix must exceed to count."""
    centered_tolerance: Magnitude | None = None
    """The same of the row-centred matrix."""
    bound: Count | None = None
    """Largest rank of the raw matrix that the output layer allows."""
    centered_bound: Count | None = None
    """The same of the row-centred matrix."""


UNKNOWN = Limits()
LARGEST_EXPONENT = 1015
"""Binary exponent of the largest singular values whose sums of squares float64 can scale and hold."""


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum:
    """The singular values of a T × M matrix, raw and with each row's mean subtracted."""

    values: Matrix
    """(min(T, M),), descending, float64; a sketch gives only the largest."""
    centered: Matrix
    """The singular values of the row-centred matrix."""
    shape: tuple[int, int]
    """(T, M)."""
    method: str
    """Name of the `SpectrumMethod` that computed it."""
    frobenius_relative_error: float
    """The certificate: relative difference of Σσ² + ρ² and ‖A‖²_F (computed apart), the larger of raw and centred."""
    residual: float = 0.0
    """ρ, the Frobenius norm of the part of A outside a sketch; zero for every other method."""
    driver: str = ""
    """Names of the LAPACK or cuSOLVER routines of the final decomposition."""
    error: float = 0.0
    """Absolute error of the method in any of ``values``; values below it are unknown."""
    centered_error: float = 0.0
    """Absolute error of the method in any of ``centered``."""

    def __repr__(self) -> str:
        """Return method, shape, number of values and the largest on one line."""
        T, M = self.shape
        largest = f", σ_1 {self.values[0]:.4g}" if len(self.values) else ""
        return f"Spectrum({self.method}, {T:,} × {M:,}, {len(self.values):,} values{largest})"

    def scaled(self, exponent: int) -> Spectrum:
        """Return the spectrum of the matrix times 2^exponent; `MatrixError` for one near the end of float64's range."""
        if not exponent:
            return self
        if math.frexp(self.values.max(initial=0.0))[1] + exponent > LARGEST_EXPONENT:
            raise MatrixError(
                "the singular values are too large for float64: divide the matrix by a power of two, no rank depends "
                "on the scale"
            )
        scaled: dict[str, Any] = {name: np.ldexp(getattr(self, name), exponent) for name in ("values", "centered")}
        for name in ("residual", "error", "centered_error"):
            scaled[name] = math.ldexp(getattr(self, name), exponent)
        return replace(self, **scaled)

    def curves(self, model: str = "", limits: Limits = UNKNOWN) -> pd.DataFrame:
        """Return what a figure shows: first the raw and then the row-centred singular values, descending.

        Columns: ``model``; ``part``, ``"raw"`` or ``"row-centred"``; ``index`` i from 1; ``sigma``, σ_i;
        ``normalized``, σ_i / σ_1; ``percent`` of the values up to σ_i; ``resolved``; ``tolerance``, over σ_1;
        ``bound``; ``size``, the number of values of any such matrix. If the method does not know all values, the last
        row of a part holds its error instead, and is not ``resolved``.

        Args:
            model: name in the legend.
            limits: tolerances and bounds that are marked.
        """
        import pandas as pd

        model = model.encode(errors="backslashreplace").decode()  # tables hold no names that are not UTF-8
        (T, M), frames = self.shape, []
        for part, values, error, size, tolerance, bound in (
            ("raw", self.values, self.error, min(T, M), limits.tolerance, limits.bound),
            # The zero that row-centring itself leaves does not count.
            ("row-centred", self.centered, self.centered_error, min(T, max(1, M - 1)),
             limits.centered_tolerance, limits.centered_bound),
        ):  # fmt: skip
            largest = float(values[0]) or 1.0
            least = max(error, EPS["float64"] * largest)
            values = values[:size]
            resolved = int((values > least).sum())
            if resolved < values.size:
                values = np.append(values[:resolved], least)
            index = np.arange(1, values.size + 1)
            columns = {
                "model": model,
                "part": part,
                "index": index,
                "sigma": values,
                "normalized": values / largest,
                "percent": 100 * (size - index + 1) / size,
                "resolved": index <= resolved,
                "tolerance": np.nan if tolerance is None else tolerance / largest,
                "bound": pd.array([bound] * values.size, dtype="Int64"),
                "size": size,
            }
            frames.append(pd.DataFrame(columns))
        return pd.concat(frames, ignore_index=True)

    def plot(
        self,
        ax: Axes | str | Path | None = None,
        *,
        label: str = "",
        limits: Limits = UNKNOWN,
        part: str = "both",
        log: bool = False,
        style: str = "screen",
    ) -> Axes:
        """Draw the figure of ``bottleneck spectrum``: the cumulative distribution beside σ_i / σ_1 against i.

        Args:
            ax: a file to write, or axes for one panel; by default all panels are drawn into a new figure.
            label: name in the legend.
            limits: tolerances and bounds to mark.
            part: ``"raw"``, ``"row-centred"``, or ``"both"``; one panel shows the raw matrix unless told otherwise.
            log: whether to draw σ_i / σ_1 against i alone, on logarithmic axes.
            style: one of ``plotting.STYLES``, for a new figure.

        Returns:
            ``ax``, or the first axes of the new figure.

        Raises:
            ConfigurationError: for an unknown part or style.
        """
        from ..results.plotting.layout import show
        from ..results.plotting.spectra import spectrum_panels

        return show(spectrum_panels(self.curves(label, limits), part=part, log=log), ax, style=style)
