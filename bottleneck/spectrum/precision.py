"""Which roundoff made a matrix: the eps that its rank is judged by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigurationError

EPS: dict[str, float] = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
}
"""Distance from 1 to the next number of each type (IEEE 754; bfloat16 keeps 8 significant bits)."""


@dataclass(frozen=True)
class Precision:
    """The roundoff of the least precise step that made a matrix's numbers."""

    value: float
    """eps."""
    dtype: str | None
    """The floating type it belongs to; ``None`` for a number given by hand."""
    assumed: bool
    """Whether it was inferred from the numbers, for want of a record."""


def precision(eps: str | float, *, assumed: bool = False) -> Precision:
    """Return the `Precision` of a type's name or a number.

    Raises:
        ConfigurationError: for an unknown name or a number outside (0, 1).

    Example:
        >>> precision("float32").value
        1.1920928955078125e-07
    """
    if isinstance(eps, str) and eps in EPS:
        return Precision(EPS[eps], eps, assumed)
    try:
        value = float(eps)
    except (TypeError, ValueError):
        value = 0.0
    if not 0 < value < 1:
        raise ConfigurationError(f"eps must be one of {', '.join(EPS)} or a number between 0 and 1, not {eps!r}")
    return Precision(value, None, assumed)


class Provenance:
    """Watches the blocks of a matrix of unknown origin and tells the precision of its numbers.

    That is the precision of its dtype, unless every value fits exactly in a narrower floating type: then the
    matrix was upcast, and that type's eps counts. A matrix of integers is exempt: integers are exact in every
    type, so they tell nothing. Of blocks of several dtypes the narrowest counts.
    """

    def __init__(self) -> None:
        self._dtypes: set[str] = set()
        self._fitting = {"float32", "bfloat16", "float16"}
        self._integers = True

    def watch(self, block: NDArray[np.floating]) -> None:
        """Take note of one block of rows."""
        self._dtypes.add({2: "float16", 4: "float32"}.get(block.dtype.itemsize, "float64"))
        self._integers = self._integers and bool(np.all(block == np.rint(block)))
        for name in list(self._fitting):
            if not _fits(block, name):
                self._fitting.discard(name)

    def precision(self) -> Precision:
        """Return what was found so far."""
        candidates = set() if self._integers else self._fitting
        return precision(max({"float64", *self._dtypes, *candidates}, key=EPS.__getitem__), assumed=True)


def _fits(block: NDArray[np.floating], name: str) -> bool:
    with np.errstate(over="ignore", under="ignore"):
        if name == "float16":
            return bool(np.all(block.astype(np.float16).astype(block.dtype) == block))
        single = np.ascontiguousarray(block, dtype=np.float32)
    if name == "bfloat16" and np.any(single.view(np.uint32) & 0xFFFF):
        return False
    return bool(np.all(single == block))
