"""The precision of a matrix's entries: the eps that the tolerance of its rank follows from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

from pydantic import BeforeValidator

from ..core.json_file import Magnitude, Size, check_schema
from ..errors import ConfigurationError

EPS: dict[str, float] = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
"""Distance from 1 to the next number of each type (IEEE 754; bfloat16 keeps 8 significant bits)."""
ROUNDINGS = 16
"""What computes in a type, such as a log-partition, has errors of up to so many of its eps; what is off by more was
rounded to something coarser."""
ALIKE = "the numbers of a row differ by their roundoff at most: what was rounded away cannot be told"
MORE = "they hold more directions than so few contexts show"
"""What else noise may be that is seen behind many directions of a sample."""


@dataclass(frozen=True)
class Noise:
    """Independent errors that stand behind the directions of a matrix."""

    deviation: Annotated[Magnitude, BeforeValidator(lambda deviation: math.inf if deviation is None else deviation)]
    """Standard deviation of independent entries whose spectral norm is that of the noise; infinite, which is null in
    JSON, where nothing of a row is left but one number."""
    is_coarse: bool
    """Whether it is coarser than the type that holds the entries, as that of an earlier rounding is."""
    may_be_signal: bool = False
    """Whether it stands behind so many directions that it may be more of them: a model may have more than there are
    rows."""

    @property
    def step(self) -> float:
        """Distance of neighbouring numbers whose rounding makes this noise: errors uniform in ±δ/2 have δ/√12."""
        return math.sqrt(12) * self.deviation

    def sentence(self, size: float) -> str:
        """Return one sentence for people on coarse noise of numbers with a root mean square of ``size``.

        A type with roundoff ε rounds numbers of that size in steps of about 0.7 ε times it: half of it or all of it.
        """
        if math.isinf(self.deviation):
            return ALIKE
        types = ("float32", "float16", "bfloat16")
        name = next((name for name in types if EPS[name] * size / 4 < self.step < 2 * EPS[name] * size), None)
        to = f"to {name} before normalization, or as coarsely" if name else "coarsely"
        steps = f"in steps of about {self.step:.2g}"
        if self.may_be_signal:
            return f"the numbers were rounded {to}, {steps}, or {MORE}"
        return f"the numbers were rounded {to}: {steps}"


@dataclass(frozen=True)
class Precision:
    """The roundoff of the least precise step that computed a matrix's entries."""

    value: Magnitude
    """eps."""
    dtype: str | None
    """The floating-point type of this eps; ``None`` for a number that the user gave."""
    assumed: bool
    """Whether it was inferred from the entries, because none was recorded."""
    size: float | None = None
    """Root mean square of the numbers that were rounded, if these are not the entries but the logits before their
    normalization."""
    distinct: tuple[Size, Size] | None = None
    """Number of different rows and of different columns, if some are repeated: roundoff fills no more directions."""
    noise: Noise | None = None
    """The noise that the entries show behind their directions, whatever its size."""

    @property
    def coarse(self) -> Noise | None:
        """The noise, if it is coarser than the type."""
        return self.noise if self.noise and self.noise.is_coarse else None

    def noise_norm(self, shape: tuple[int, int]) -> float:
        r"""Return the expected spectral norm of the noise of a T × M matrix; 0 if the entries show none.

        A random matrix of T × M entries with standard deviation s has norm :math:`s (\sqrt T + \sqrt M)` (Davidson and
        Szarek 2001, theorem II.13). Copies of rows and columns copy their noise.
        """
        (T, M), (rows, columns) = shape, self.distinct or shape
        return self.noise.deviation * (math.sqrt(T * M / columns) + math.sqrt(M * T / rows)) if self.noise else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; fields beyond eps, type and ``assumed`` only if they are set."""
        defaults = {field.name: field.default for field in fields(self)}
        values = {key: value for key, value in asdict(self).items() if value != defaults[key]}
        if self.distinct:
            values["distinct"] = list(self.distinct)
        if self.noise and math.isinf(self.noise.deviation):
            values["noise"]["deviation"] = None
        if self.noise and not self.noise.may_be_signal:
            del values["noise"]["may_be_signal"]
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
