"""When averaging of the weights starts, and when the model is validated."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from .config import AveragingConfig


def is_non_monotone(losses: Sequence[float], interval: int) -> bool:
    """Return whether the last validation loss is above the least of all but the ``interval`` before it.

    This is the trigger of NT-ASGD (Merity et al. 2018, algorithm 1); ``interval`` is its n.

    Example:
        >>> is_non_monotone([5.0, 4.0, 4.2, 4.1], 2), is_non_monotone([5.0, 4.0, 4.2, 4.1], 1)
        (False, True)
    """
    earlier = losses[: max(0, len(losses) - 1 - interval)]
    return bool(earlier) and losses[-1] > min(earlier)


def starts_averaging(config: AveragingConfig, losses: Sequence[float], *, epochs: int) -> bool:
    """Return whether averaging should start now, after ``epochs`` epochs and the validation ``losses``."""
    if config.start == "epoch":
        return epochs >= config.epoch
    is_late = config.latest is not None and epochs >= config.latest
    return config.start == "non-monotone" and (is_late or is_non_monotone(losses, config.interval))


def validated_after(lengths: Sequence[int], validations: int) -> set[int]:
    """Return the positions in an epoch at which a model is validated, including the epoch's end.

    Validations come after equal numbers of segments, whose ``lengths`` are given, at most one for each segment.

    Example:
        >>> sorted(validated_after([10, 10, 5, 10], 2))
        [20, 35]
    """
    ends = [*accumulate(lengths)]
    validations = min(validations, len(ends))
    return {ends[-(-len(ends) * part // validations) - 1] for part in range(1, validations + 1)}
