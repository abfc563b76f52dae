"""A decorator for backward passes that cannot be differentiated again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

from ..errors import ConfigurationError

_Result = TypeVar("_Result")


def first_order(backward: Callable[..., _Result]) -> Callable[..., _Result]:
    """Let ``backward`` raise an error under ``create_graph=True``, the one case where gradient mode is on inside it.

    Autograd sees a gradient computed in the forward pass as a constant: a second derivative would silently lack terms.
    Torch's ``once_differentiable`` raises only if the upstream gradient requires a gradient; that of a loss does not.
    """

    @wraps(backward)
    def checked(ctx: Any, *upstream: Any) -> _Result:
        if torch.is_grad_enabled():
            raise ConfigurationError("a head's nll and PLIF have first derivatives only: leave out create_graph=True")
        return backward(ctx, *upstream)

    return checked
