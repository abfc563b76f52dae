"""The methods by name, in the order in which ``auto`` tries them."""

from __future__ import annotations

from ..core import plugins
from ..errors import ConfigurationError, Parameter
from .base import SpectrumMethod
from .dense import Dense
from .factored import Factored
from .gram import Gram
from .sketch import Sketch
from .tsqr import TSQR

REGISTRY: dict[str, type[SpectrumMethod]] = {method.name: method for method in (Factored, Gram, TSQR, Dense, Sketch)}


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


def takes_factors(method: str) -> bool:
    """Return whether a method, or ``auto``, takes the thin factors of a matrix that has them."""
    return method == "auto" or find(method).from_factors
