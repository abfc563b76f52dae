"""Functions that ``torch.compile`` must not trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Returned = TypeVar("Returned")

_EAGER: dict[Callable[..., Any], Callable[..., Any]] = {}


def eagerly(function: Callable[..., Returned], *args: Any, **kwargs: Any) -> Returned:
    """Call a function, inside compiled code as one step that is not compiled.

    What torch makes of the function is created on first use, which loads the compiler, and kept, because a new one
    would cause a recompilation.
    """
    if not torch.compiler.is_compiling():
        return function(*args, **kwargs)
    if function not in _EAGER:
        _EAGER[function] = torch.compiler.disable(function)
    returned: Returned = _EAGER[function](*args, **kwargs)
    return returned
