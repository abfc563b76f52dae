"""The formula of the head lms-net, as its paper prints it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from formulas.parts import contexts, logits_of, normalized

SETTINGS = {"hidden_units": 3, "interval": 1.5}


def naive(head: Any, hidden: Tensor) -> Tensor:
    logits, f = logits_of(head, *contexts(head, hidden)), head.function
    u, v = torch.log(1 + torch.exp(f.u)), torch.log(1 + torch.exp(f.v))
    units = 1 / (1 + torch.exp(-(logits.unsqueeze(-1) * u + f.b)))
    return normalized(torch.exp(units @ v))
