"""The formula of the head mos-plif, as its paper prints it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from formulas.parts import contexts, integrated, logits_of, normalized, prior

SETTINGS = {"components": 3, "knots": 12, "interval": 1.5}


def naive(head: Any, hidden: Tensor) -> Tensor:
    bent = [integrated(head, logits_of(head, context)) for context in contexts(head, hidden)]
    return sum(p * normalized(torch.exp(part)) for p, part in zip(prior(head, hidden), bent, strict=True))
