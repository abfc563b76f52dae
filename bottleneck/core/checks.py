"""Checks of settings that many classes and functions have."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from ..errors import ConfigurationError


def check_positive(**counts: Any) -> None:
    """Refuse counts and sizes that are not whole numbers of at least one; ``None`` stands for a default."""
    for name, count in counts.items():
        if count is not None and (isinstance(count, bool) or not isinstance(count, Integral)):
            raise ConfigurationError(f"{name} must be a whole number of at least 1, not {count!r}")
        if count is not None and count < 1:
            raise ConfigurationError(f"{name} must be at least 1, not {count}")


def check_dropout(**probabilities: float) -> None:
    """Refuse probabilities of dropping something outside [0, 1)."""
    for name, probability in probabilities.items():
        if not 0 <= probability < 1:
            raise ConfigurationError(f"{name} must be in [0, 1), not {probability}")
