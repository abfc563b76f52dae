"""The running average of the weights (averaged SGD), when it starts, and when the model is validated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate

import torch
from torch import Tensor, nn

from .config import AveragingConfig


class WeightAverage:
    r"""The mean of a model's weights after each step since some step; tied weights are kept once.

    .. math:: \bar w_n = \bar w_{n-1} + (w_n - \bar w_{n-1}) / n

    This is the average of ASGD (Polyak and Juditsky 1992) as AWD-LSTM uses it: no decay, a constant learning rate.
    """

    def __init__(self, model: nn.Module) -> None:
        self._weights = dict(model.named_parameters())
        self.tensors: dict[str, Tensor] = {}
        """The averages by the weights' names; empty before averaging starts."""
        self.steps: int | None = None
        """n, the number of steps averaged over; ``None`` before averaging starts."""

    def start(self) -> None:
        """Start averaging with the next step."""
        self.restore(self._weights, 0)

    def update(self) -> None:
        """Add the weights after a step to the average, if it has started."""
        if self.steps is not None:
            self.steps += 1
            weights = [weight.detach() for weight in self._weights.values()]
            torch._foreach_lerp_(list(self.tensors.values()), weights, 1 / self.steps)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Replace the model's weights by their averages inside the block, and restore them exactly after it."""
        if not self.steps:
            yield
            return
        current = {name: weight.detach().clone() for name, weight in self._weights.items()}
        try:
            self._fill(self.tensors)
            yield
        finally:
            self._fill(current)

    def restore(self, tensors: Mapping[str, Tensor], steps: int | None) -> None:
        """Copy the average of so many steps from `tensors`."""
        self.steps = steps
        if steps is not None:
            copies = {name: tensors[name].detach().clone() for name in self._weights}
            self.tensors = {name: copy.to(self._weights[name].device) for name, copy in copies.items()}

    @torch.no_grad()
    def _fill(self, tensors: Mapping[str, Tensor]) -> None:
        for name, weight in self._weights.items():
            weight.copy_(tensors[name])


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
