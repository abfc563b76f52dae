"""Backward passes that must not be differentiated again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

from ..errors import ConfigurationError

_Result = TypeVar("_Result")


def first_order(backward: Callable[..., _Result]) -> Callable[..., _Result]:
    """Let ``backward`` refuse ``create_graph=True``, which alone turns gradient mode on inside it.

    A gradient made in the forward pass is a mere number to autograd: a second derivative through it would
    lack terms without a word. Torch's ``once_differentiable`` notices only when the upstream gradient is itself
    differentiable, and for a loss it is the constant one.
    """

    @wraps(backward)
    def checked(ctx: Any, *upstream: Any) -> _Result:
        if torch.is_grad_enabled():
            raise ConfigurationError("a head's nll and PLIF have first derivatives only: leave out create_graph=True")
        return backward(ctx, *upstream)

    return checked
