"""Measurements are made in full precision, whatever the surroundings have switched on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Switch TF32, autocast and gradients off inside the block and restore what was found."""
    switches = _switches()
    try:
        for switch, _, full in switches:
            switch(full)
        with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        for switch, found, _ in switches:
            switch(found)


def _switches() -> list[tuple[Callable[[Any], None], Any, Any]]:
    """Return all that lowers float32 products: how to set it, what it is now, and what leaves them whole."""
    backends: Any = torch.backends
    if hasattr(backends, "fp32_precision"):
        # Since torch 2.9 each operator has its own setting; once one was used, torch refuses the older names.
        cuda, cudnn, mkldnn = backends.cuda, backends.cudnn, backends.mkldnn
        operators = (cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv, mkldnn.rnn)
        return [(partial(setattr, each, "fp32_precision"), each.fp32_precision, "ieee") for each in operators]
    return [
        (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision(), "highest"),
        (partial(setattr, backends.cudnn, "allow_tf32"), backends.cudnn.allow_tf32, False),
    ]
