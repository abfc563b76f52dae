"""How far any low-rank log-probability matrix must stay from the true one."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigurationError
from ..spectrum import Spectrum


@dataclass(frozen=True)
class EckartYoung:
    """Lower bounds on ‖log P* − log Q‖_F² for every linear softmax Q of one embedding size."""

    raw: float
    """From the raw spectrum: Q's matrix has rank D + 1 at most."""
    centered: float
    """From the row-centred one, never smaller: without its log-partition column Q's matrix has rank D at most."""


def eckart_young(spectrum: Spectrum, embedding_size: int) -> EckartYoung:
    r"""Return what no linear softmax without bias can go below (LMS paper, theorem 1, corrected).

    The printed theorem takes a square root of its right side only; by Eckart, Young and Mirsky it is

    .. math:: \|A_{P^*} - A_Q\|_F^2 ≥ σ_{D+2}^2 + \dots + σ_M^2

    Subtracting each row's mean never lengthens a row, so the same holds of the row-centred matrices, whose σ begin to
    count at D + 1.

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
    if embedding_size < 1:
        raise ConfigurationError(f"the embedding size must be at least 1, not {embedding_size}")
    if spectrum.residual:
        raise ConfigurationError("a sketch leaves singular values out: measure the spectrum with another method")
    return EckartYoung(
        raw=float((spectrum.values[embedding_size + 1 :] ** 2).sum()),
        centered=float((spectrum.centered[embedding_size:] ** 2).sum()),
    )
