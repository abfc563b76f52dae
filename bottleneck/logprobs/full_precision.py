"""Measurements are made in full precision, whatever the surroundings have switched on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Switch TF32, autocast and gradients off inside the block and restore what was found (DESIGN rule 5.8)."""
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
    backends = torch.backends
    try:
        return [
            (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision(), "highest"),
            (partial(setattr, backends.cudnn, "allow_tf32"), backends.cudnn.allow_tf32, False),
        ]
    except RuntimeError:
        # Since torch 2.9 there is a setting for each operator, and once one was used the older names are refused.
        cuda, cudnn, mkldnn = backends.cuda, backends.cudnn, backends.mkldnn
        operators: tuple[Any, ...] = (cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv, mkldnn.rnn)
        return [(partial(setattr, each, "fp32_precision"), each.fp32_precision, "ieee") for each in operators]
