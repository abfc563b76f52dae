"""The choice of a method: by the matrix's shape, the roundoff of its entries, the price and the memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..errors import ConfigurationError, MatrixError, Parameter, unknown
from .base import SpectrumMethod
from .dense import Dense
from .factored import AT_ONCE, Factored, rows_at_once
from .gram import RESOLUTION, Gram, WideGram
from .host import Host
from .precision import EPS
from .rules import MARGIN, tolerance
from .settings import SpectrumSettings
from .sketch import Projection, RangeFinder
from .tsqr import TSQR

METHODS: dict[str, type[SpectrumMethod]] = {method.name: method for method in (Factored, Gram, TSQR, Dense, Projection)}
"""The methods by name; that of a sketch is its second pass."""
LARGEST_INDEX = 2**31 - 1
"""Largest number of entries for LAPACK, which uses 32-bit integers: larger arrays crash it or give wrong results."""
SMALL = 1 << 24
"""Number of entries below which the dense method takes seconds, so a less accurate method has no advantage."""
QR_SHARE = 0.4
"""Rate of a tall QR factorization relative to a matrix product (measured with OpenBLAS, 50,257 × 770 float64)."""


class MethodCost(NamedTuple):
    """What a method needs for a matrix."""

    memory: int
    """Peak memory in bytes, without the block of rows that it is given."""
    operations: float
    """Floating-point operations, in operations of a matrix product that take the same time."""
    largest_array: int
    """Number of entries of the largest array that it passes to LAPACK."""


def build(how: SpectrumSettings, columns: Any) -> SpectrumMethod | RangeFinder:
    """Return the method that the settings name, for rows of M columns; ``"factored"`` takes Y, (M, r), in place of M.

    Raises:
        ConfigurationError: for an unknown name; the text lists the known ones.
    """
    method = find(how.method)
    if method is Projection:  # each process draws a part of the sketch of its own
        seed = (0, how.processes.index)
        return RangeFinder(columns, width=how.width, seed=seed, arithmetic=how.arithmetic)
    return method(columns, arithmetic=how.arithmetic)


def _reasons(shape: tuple[int, int], eps: float, factor_columns: int) -> list[tuple[str, str]]:
    """Return the names in the order in which ``auto`` tries them, each with the reason for it; "" is against it."""
    T, M = shape
    small = T * M <= SMALL
    enough = f"accurate enough for entries with a roundoff of {eps:.3g}"
    resolved = tolerance(1.0, shape, eps) / MARGIN >= RESOLUTION
    return [
        ("factored", f"the head's factors have {factor_columns:,} columns" if factor_columns else ""),
        ("dense", "the matrix is small" if small else ""),
        ("gram", f"fast, and {enough}" if resolved else ""),
        ("tsqr", enough if T >= M else ""),
        ("dense", "" if small else f"fewer contexts than tokens, and {enough}"),
        ("sketch", "it needs the least memory"),
    ]


@dataclass(frozen=True)
class Choice:
    """A method for a matrix and its cost; nothing is allocated before `start`."""

    how: SpectrumSettings
    """The settings, with the name of the method."""
    why: str
    """The reason, in a few words."""
    shape: tuple[int, int]
    """(T, M)."""
    factor_columns: int
    """Number r of columns of the matrix's thin factors, 0 without factors."""

    @property
    def name(self) -> str:
        """Name of the method."""
        return self.how.method

    @property
    def cost(self) -> MethodCost:
        """What the method needs for the matrix."""
        (T, M), r = self.shape, self.factor_columns
        k = max(1, min(self.how.width, M - 1))
        on_host = isinstance(self.how.arithmetic, Host)
        if self.name == "factored":
            # At the peak both triangles, XᵀX, the product, and copies for LAPACK; and three blocks of rows: itself,
            # with what is put above or beside it, and LAPACK's copy.
            block = max(min(T, rows_at_once(r)), min(M, max(AT_ONCE // r, rows_at_once(r))))
            return MethodCost(8 * r * (7 * r + 3 * block), (3.0 * M + 3.0 * T / QR_SHARE) * r**2, r * (r + block))
        if self.name == "gram" and T < M:  # the rows, and three T × T matrices
            return MethodCost(8 * (T * M + 3 * T**2), 1.0 * T**2 * M + 2.0 * T**3, T**2)
        if self.name == "gram":  # in place on the CPU, otherwise the sum, the reflected one, the solver's copy and work
            return MethodCost((1 if on_host else 4) * 8 * M**2, 1.0 * T * M**2 + 2.0 * M**3, M**2)
        if self.name == "tsqr":  # the triangle, the block of twice as many rows, and its triangle; otherwise the block
            # on top of the triangle, and QR's copy of that
            operations = (2.0 * T * M**2 + 4.0 * min(T, M) ** 3) / QR_SHARE
            return MethodCost((4 if on_host else 9) * 8 * M**2, operations, M**2)
        if self.name == "dense":  # rows, matrix, LAPACK's copy and workspace
            return MethodCost(4 * 8 * T * M, 4.0 * T * M * min(T, M) / QR_SHARE, T * M)
        # A sketch: S, the input of its QR, Householder vectors and V; three products with the rows.
        return MethodCost(4 * 8 * M * k, 6.0 * T * M * k, M * k)

    def start(self, right: Any = None) -> SpectrumMethod | RangeFinder:
        """Return the method, ready for rows.

        Args:
            right: Y, (M, r), for ``"factored"``, which takes the rows of X in A = X Yᵀ.
        """
        T, M = self.shape
        if self.name == "gram" and T < M:
            return WideGram(M, arithmetic=self.how.arithmetic)
        return build(self.how, M if right is None else right)

    def over_limit(self, allowed: int) -> str:
        """Return which limit the method exceeds, as ``auto`` reports it, or an empty string."""
        name, cost = self.name, self.cost
        if name == "factored":
            return ""
        if cost.largest_array > LARGEST_INDEX:
            return f"{name} would need {cost.largest_array:,} numbers; LAPACK has no index for them"
        return f"{name} would need {size(cost.memory)}; {size(allowed)} are allowed" if cost.memory > allowed else ""

    def error(self, allowed: int) -> MatrixError:
        """Return the error for a method that does not fit."""
        T, M = self.shape
        sketch = self.name == "sketch"
        advice: list[str | Parameter] = (
            ["use a smaller ", Parameter("width")] if sketch else ["use ", Parameter("method", "sketch")]
        )
        if self.cost.largest_array <= LARGEST_INDEX:
            saves = replace(self, shape=(T // 2, M)).cost.memory < self.cost.memory
            advice = ["raise ", Parameter("max_memory"), f", {'measure fewer contexts, ' if saves else ''}or ", *advice]
        return MatrixError(f"{self.over_limit(allowed)} (for a {T:,} × {M:,} matrix): ", *advice)


def choose(how: SpectrumSettings, *, shape: tuple[int, int], eps: float, factor_columns: int = 0) -> Choice:
    """Return the method for a T × M matrix.

    Args:
        how: the settings; with the method ``"auto"`` the first method that suits the matrix and fits in memory is
            chosen, and otherwise a sketch.
        shape: (T, M).
        eps: relative roundoff of the entries.
        factor_columns: number r of columns of the matrix's thin factors; 0 without factors.

    Raises:
        ConfigurationError: for an unknown method, or one that needs thin factors that the matrix does not have.
        MatrixError: when no method fits into the memory.
    """
    if not factor_columns:
        check_factors(how.method)
    is_auto, allowed = how.method == "auto", how.memory()
    reasons = _reasons(shape, eps, factor_columns) if is_auto else [(find(how.method).name, "asked for")]
    choices = [Choice(replace(how, method=name), why, shape, factor_columns) for name, why in reasons if why]
    over = [choice.over_limit(allowed) for choice in choices]
    if "" not in over:
        raise min(choices, key=lambda choice: choice.cost.memory).error(allowed)
    fitting = over.index("")
    return replace(choices[fitting], why=over[0]) if fitting else choices[0]


def check_resolution(method: str, *, shape: tuple[int, int], eps: float) -> None:
    """Refuse a method that cannot resolve a tenth of Press's tolerance, the finest tolerance of a report.

    Raises:
        MatrixError: for such a method; the text names the method to use instead.
    """
    if method == "auto":
        return
    resolution, limit = find(method).resolution, tolerance(1.0, shape, eps) / MARGIN
    if resolution > max(limit, EPS["float64"]):
        raise MatrixError(
            f"the {method} method resolves σ/σ_1 down to {resolution:.1e}, but the tolerance asked for is "
            f"{limit:.1e}: use ",
            Parameter("method", "tsqr"),
            ", or an ",
            Parameter("eps"),
            " that fits how the numbers were made",
        )


def size(count: int) -> str:
    """Return a number of bytes as text."""
    for unit, bytes_in_it in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= bytes_in_it:
            return f"{count / bytes_in_it:.1f} {unit}"
    return f"{count} bytes"


def find(name: str) -> type[SpectrumMethod]:
    """Return the method of a name.

    Raises:
        ConfigurationError: for an unknown name; the text lists the known ones.
    """
    if not isinstance(name, str) or name not in METHODS:
        raise ConfigurationError(unknown("method", name, ["auto", *METHODS]))
    return METHODS[name]


def check_factors(method: str, matrix: str = "a matrix") -> None:
    """Refuse an unknown method, and one that needs thin factors for a matrix that has none."""
    if method != "auto" and find(method) is Factored:
        raise ConfigurationError(
            f"the {method} method needs a model with a log-linear head (softmax or moc), not {matrix}; use ",
            Parameter("method", "auto"),
        )
