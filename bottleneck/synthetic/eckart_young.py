"""Lower bounds on the distance between a low-rank log-probability matrix and the true one."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigurationError
from ..spectrum import Spectrum
from ..theory import frobenius_lower_bound


@dataclass(frozen=True)
class EckartYoung:
    """Lower bounds on ‖log P* − log Q‖_F² for every linear softmax Q of one embedding size."""

    raw: float
    """Bound from the raw spectrum: log Q has rank D + 1 at most."""
    centered: float
    """Bound from the row-centred spectrum, never smaller: row-centred, log Q has rank D at most."""


def eckart_young(spectrum: Spectrum, embedding_size: int) -> EckartYoung:
    """Return bounds for every linear softmax without bias: the squares of `theory.frobenius_lower_bound`.

    Source: Ganea et al. 2019, theorem 1, corrected.

    Args:
        spectrum: spectrum of log P*.
        embedding_size: D.

    Raises:
        ConfigurationError: for D below one, or an incomplete spectrum.

    Example:
        >>> import numpy as np
        >>> values = np.array([3.0, 2.0, 1.0])
        >>> eckart_young(Spectrum(values, values, (3, 3), "dense", 0.0), 1).raw
        1.0
    """
    if spectrum.residual:
        raise ConfigurationError("a sketch has not all singular values: measure the spectrum with another method")
    return EckartYoung(
        raw=frobenius_lower_bound(spectrum.values, embedding_size) ** 2,
        centered=frobenius_lower_bound(spectrum.centered, embedding_size, centered=True) ** 2,
    )
