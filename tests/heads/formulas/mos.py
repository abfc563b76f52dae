"""The formula of the head mos, as its paper prints it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from formulas.parts import contexts, logits_of, normalized, prior

SETTINGS = {"components": 3}


def naive(head: Any, hidden: Tensor) -> Tensor:
    softmaxes = [normalized(torch.exp(logits_of(head, context))) for context in contexts(head, hidden)]
    return sum(p * q for p, q in zip(prior(head, hidden), softmaxes, strict=True))
