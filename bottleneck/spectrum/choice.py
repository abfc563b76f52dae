"""The methods by name, and the choice of one: by the matrix's shape, the roundoff of its entries and the memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from ..core import plugins
from ..core.devices import ask
from ..errors import ConfigurationError, MatrixError, Parameter
from .accelerator import arithmetic_for
from .base import DEFAULT_WIDTH, SMALL, Cost, Options, SpectrumMethod
from .dense import Dense
from .factored import Factored
from .gram import Gram
from .precision import EPS
from .rules import MARGIN, tolerance
from .sketch import Sketch
from .tsqr import TSQR

REGISTRY: dict[str, type[SpectrumMethod]] = {method.name: method for method in (Factored, Gram, TSQR, Dense, Sketch)}
"""The methods of this package, in the order in which ``auto`` tries them."""
DEFAULT_MEMORY = 8 << 30
"""Default memory limit of a computation, in bytes."""
LARGEST_INDEX = 2**31 - 1
"""Largest number of entries for LAPACK, which uses 32-bit integers: larger arrays crash it or give wrong results."""


@dataclass(frozen=True)
class Choice:
    """A method for a matrix and its cost; nothing is allocated before `start`."""

    method: type[SpectrumMethod]
    why: str
    """The reason, in a few words."""
    shape: tuple[int, int]
    """(T, M)."""
    options: Options

    @property
    def cost(self) -> Cost:
        """What the method needs for the matrix."""
        return self.method.cost(self.shape, self.options)

    def start(self, right: Any = None) -> SpectrumMethod:
        """Return the method, ready for rows.

        Args:
            right: Y, (M, r), for a method that takes the rows of X in A = X Yᵀ.

        Raises:
            MatrixError: when the device has no memory for it.
        """
        try:
            return self.method.build(self.shape[1] if right is None else right, self.options)
        except torch.OutOfMemoryError as error:
            raise MatrixError(
                f"{self.options.arithmetic.device} has no {size(self.cost.memory)} free for the {self.method.name} "
                "method: use ",
                Parameter("device", "cpu"),
            ) from error

    def over_limit(self, allowed: int) -> str:
        """Return which limit the method exceeds, as ``auto`` reports it, or an empty string."""
        name, cost = self.method.name, self.cost
        if self.method.from_factors:
            return ""
        if cost.largest_array > LARGEST_INDEX:
            return f"{name} would need {cost.largest_array:,} numbers; LAPACK has no index for them"
        return f"{name} would need {size(cost.memory)}; {size(allowed)} are allowed" if cost.memory > allowed else ""

    def error(self, allowed: int) -> MatrixError:
        """Return the error for a method that does not fit."""
        T, M = self.shape
        advice: list[str | Parameter] = ["use ", Parameter("method", "sketch")]
        if self.method is Sketch:
            advice = ["use a smaller ", Parameter("width")]
        if self.cost.largest_array <= LARGEST_INDEX:
            half = (T // 2, M)
            saves = self.method.variant(half).cost(half, self.options).memory < self.cost.memory
            advice = ["raise ", Parameter("max_memory"), f", {'measure fewer contexts, ' if saves else ''}or ", *advice]
        return MatrixError(f"{self.over_limit(allowed)} (for a {T:,} × {M:,} matrix): ", *advice)


def choose(
    method: str,
    *,
    shape: tuple[int, int],
    eps: float,
    max_memory: int | None = None,
    width: int = DEFAULT_WIDTH,
    seed: int | tuple[int, ...] = 0,
    factor_columns: int = 0,
    device: str = "cpu",
) -> Choice:
    """Return the method for a T × M matrix.

    Args:
        method: a name in `REGISTRY`, or ``"auto"`` for the first method that suits the matrix and fits in memory, and
            otherwise a sketch.
        shape: (T, M).
        eps: relative roundoff of the entries.
        max_memory: bytes of the device's memory; by default `default_memory`.
        width: number k of dimensions of a sketch.
        seed: seed of a sketch.
        factor_columns: number r of columns of the matrix's thin factors; 0 without factors.
        device: device that decomposes the matrix.

    Raises:
        ConfigurationError: for an unknown method, or one that needs thin factors that the matrix does not have.
        MatrixError: when no method fits into the memory.
    """
    if not factor_columns:
        check_factors(method)
    options = Options(width=width, seed=seed, factor_columns=factor_columns, arithmetic=arithmetic_for(device))
    allowed = default_memory(device) if max_memory is None else max_memory
    if method == "auto":
        small = shape[0] * shape[1] <= SMALL
        methods = sorted(REGISTRY.values(), key=lambda known: not (known.from_factors or (small and known is Dense)))
        reasons = {known: known.suits(shape, eps, options) for known in methods}
    else:
        reasons = {find(method): "asked for"}
    choices = [Choice(known.variant(shape), why, shape, options) for known, why in reasons.items() if why]
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
    resolution, limit = find(method).resolution, tolerance(1.0, shape, eps, "press") / MARGIN
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


def default_memory(device: str) -> int:
    """Return the default memory limit of a decomposition: `DEFAULT_MEMORY`, or an accelerator's free memory
    where torch knows it."""
    where = arithmetic_for(device).device
    free, _ = ask(where, "mem_get_info", where) or (DEFAULT_MEMORY, None)
    return int(free)


def find(name: str) -> type[SpectrumMethod]:
    """Return the method registered under a name, here or by an installed package (see `plugins`).

    Raises:
        ConfigurationError: for an unknown name; the text lists the known ones.
    """
    method: type[SpectrumMethod] = plugins.find_class("spectrum", name, SpectrumMethod, REGISTRY, "method", "auto")
    return method


def check_factors(method: str, matrix: str = "a matrix") -> None:
    """Refuse an unknown method, and one that needs thin factors for a matrix that has none."""
    if method != "auto" and find(method).from_factors:
        raise ConfigurationError(
            f"the {method} method needs a model with a log-linear head (softmax or moc), not {matrix}; use ",
            Parameter("method", "auto"),
        )
