"""The running average of the weights, swapped in where they are evaluated and kept (averaged SGD)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    r"""The mean of a model's weights after each step since some step.

    .. math:: \bar w_n = \bar w_{n-1} + (w_n - \bar w_{n-1}) / n

    This is the average of ASGD (Polyak and Juditsky 1992) as AWD-LSTM uses it: no decay, a constant learning rate.

    Args:
        model: whose weights; the average of tied ones is kept once.
    """

    def __init__(self, model: nn.Module) -> None:
        self._weights = dict(model.named_parameters())
        self._averages: dict[str, Tensor] = {}
        self.steps: int | None = None
        """n, the number of steps averaged over; ``None`` before averaging starts."""

    def start(self) -> None:
        """Average from the next step on."""
        self._averages = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self.steps = 0

    def update(self) -> None:
        """Take the weights after a step into the average, where there is one."""
        if self.steps is not None:
            self.steps += 1
            weights = [weight.detach() for weight in self._weights.values()]
            torch._foreach_lerp_(list(self._averages.values()), weights, 1 / self.steps)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Give the model the averages inside the block, and its own weights back after it, to the last bit."""
        if not self.steps:
            yield
            return
        own = {name: weight.detach().clone() for name, weight in self._weights.items()}
        try:
            self._fill(self._averages)
            yield
        finally:
            self._fill(own)

    def tensors(self) -> dict[str, Tensor]:
        """Return the averages by the weights' names; none before averaging starts."""
        return dict(self._averages)

    def restore(self, tensors: Mapping[str, Tensor], steps: int | None) -> None:
        """Take up what `tensors` and ``steps`` were."""
        self.steps = steps
        weights = self._weights.items() if tensors else ()
        self._averages = {name: tensors[name].to(weight.device) for name, weight in weights}

    @torch.no_grad()
    def _fill(self, tensors: Mapping[str, Tensor]) -> None:
        for name, weight in self._weights.items():
            weight.copy_(tensors[name])
