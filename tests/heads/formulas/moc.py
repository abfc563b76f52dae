"""The formula of the head moc, as its paper prints it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from formulas.parts import contexts, logits_of, normalized, prior

SETTINGS = {"components": 3}


def naive(head: Any, hidden: Tensor) -> Tensor:
    mixed = sum(p * h for p, h in zip(prior(head, hidden), contexts(head, hidden), strict=True))
    return normalized(torch.exp(logits_of(head, mixed)))
