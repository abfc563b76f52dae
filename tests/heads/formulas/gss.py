"""The formula of the head gss, as its paper prints it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from formulas.parts import contexts, logits_of, normalized


def naive(head: Any, hidden: Tensor) -> Tensor:
    logits, c, k = logits_of(head, *contexts(head, hidden)), head.c, head.k
    return normalized(torch.exp(logits) * (1 / (1 + torch.exp(c - logits))) ** (k - 1))
