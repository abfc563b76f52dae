"""How far any low-rank log-probability matrix must stay from the true one."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigurationError
from ..spectrum import Spectrum
from ..theory import frobenius_lower_bound


@dataclass(frozen=True)
class EckartYoung:
    """Lower bounds on ‖log P* − log Q‖_F² for every linear softmax Q of one embedding size."""

    raw: float
    """From the raw spectrum: Q's matrix has rank D + 1 at most."""
    centered: float
    """From the row-centred one, never smaller: without its log-partition column Q's matrix has rank D at most."""


def eckart_young(spectrum: Spectrum, embedding_size: int) -> EckartYoung:
    """Return what no linear softmax without bias can go below (LMS paper, theorem 1, corrected).

    The squares of `theory.frobenius_lower_bound`.

    Args:
        spectrum: of log P*.
        embedding_size: D.

    Raises:
        ConfigurationError: for D below one, or a spectrum that left something out.

    Example:
        >>> import numpy as np
        >>> values = np.array([3.0, 2.0, 1.0])
        >>> eckart_young(Spectrum(values, values, (3, 3), "dense", 0.0), 1).raw
        1.0
    """
    if spectrum.residual:
        raise ConfigurationError("a sketch leaves singular values out: measure the spectrum with another method")
    return EckartYoung(
        raw=frobenius_lower_bound(spectrum.values, embedding_size) ** 2,
        centered=frobenius_lower_bound(spectrum.centered, embedding_size, centered=True) ** 2,
    )
