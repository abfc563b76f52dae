"""Checks of settings that many classes and functions have."""

from __future__ import annotations

from .errors import ConfigurationError


def check_positive(**counts: int | None) -> None:
    """Refuse counts and sizes below one; ``None`` stands for a default."""
    for name, count in counts.items():
        if count is not None and count < 1:
            raise ConfigurationError(f"{name} must be at least 1, not {count}")


def check_dropout(**probabilities: float) -> None:
    """Refuse probabilities of dropping something outside [0, 1)."""
    for name, probability in probabilities.items():
        if not 0 <= probability < 1:
            raise ConfigurationError(f"{name} must be in [0, 1), not {probability}")
