"""The precision of a matrix's entries: the eps that the tolerance of its rank follows from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..core.json_file import Magnitude, Size, check_schema
from ..errors import ConfigurationError
from .noise import Rounding

EPS: dict[str, float] = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
"""Distance from 1 to the next number of each type (IEEE 754; bfloat16 keeps 8 significant bits)."""


@dataclass(frozen=True)
class Precision:
    """The roundoff of the least precise step that computed a matrix's entries."""

    value: Magnitude
    """eps."""
    dtype: str | None
    """The floating-point type of this eps; ``None`` for a number that the user gave."""
    assumed: bool
    """Whether it was inferred from the entries, because none was recorded."""
    rounding: Rounding | None = None
    """A coarser rounding that the entries still show."""
    size: float | None = None
    """Root mean square of the numbers that were rounded, if these are not the entries but the logits before their
    normalization."""
    distinct: tuple[Size, Size] | None = None
    """Number of different rows and of different columns, if some are repeated: roundoff fills no more directions."""
    noise: Magnitude | None = None
    """Standard deviation of the noise that the entries show behind their directions, whatever its size."""

    def noise_norm(self, shape: tuple[int, int]) -> float:
        """Return the spectral norm of the noise that the entries of a T × M matrix show; 0 where they show none.

        Copies of rows and columns copy their noise.
        """
        T, M = shape
        rounding = 0.0 if self.rounding is None else self.rounding.noise(shape)
        rows, columns = self.distinct or shape
        return max(rounding, (self.noise or 0.0) * (math.sqrt(T * M / columns) + math.sqrt(M * T / rows)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; fields beyond eps, type and ``assumed`` only if they are set."""
        defaults = {field.name: field.default for field in fields(self)}
        values = {key: value for key, value in asdict(self).items() if value != defaults[key]}
        if self.rounding and math.isinf(self.rounding.step):
            values["rounding"]["step"] = None
        return values

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Precision:
        """Return the precision that a result of `to_dict` describes; `ValueError` for another record."""
        return check_schema(dict(record), cls)


def precision(eps: str | float, *, assumed: bool = False) -> Precision:
    """Return the `Precision` for the name of a type or a number.

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
