"""When averaging starts and when training stops: functions of the validation losses so far."""

from __future__ import annotations

from collections.abc import Sequence

from .config import AveragingConfig


def is_non_monotone(losses: Sequence[float], interval: int) -> bool:
    """Return whether the last loss is above the least of all but the ``interval`` before it.

    This is the trigger of NT-ASGD (Merity et al. 2018, algorithm 1).

    Args:
        losses: after each epoch so far, the last one included.
        interval: n, how many epochs without an improvement are borne.

    Example:
        >>> is_non_monotone([5.0, 4.0, 4.2, 4.1], 2), is_non_monotone([5.0, 4.0, 4.2, 4.1], 1)
        (False, True)
    """
    earlier = losses[: max(0, len(losses) - 1 - interval)]
    return bool(earlier) and losses[-1] > min(earlier)


def starts_averaging(config: AveragingConfig, losses: Sequence[float]) -> bool:
    """Return whether averaging should start now, after ``len(losses)`` epochs."""
    if config.start == "epoch":
        return len(losses) >= config.epoch
    return config.start == "non-monotone" and is_non_monotone(losses, config.interval)
