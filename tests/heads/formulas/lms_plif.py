"""The formula of the head lms-plif, as its paper prints it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from formulas.parts import contexts, integrated, logits_of, normalized

SETTINGS = {"knots": 12, "interval": 1.5}


def naive(head: Any, hidden: Tensor) -> Tensor:
    return normalized(torch.exp(integrated(head, logits_of(head, *contexts(head, hidden)))))
