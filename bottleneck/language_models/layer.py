"""The output layer of a model, a file or an object, without a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import SourceError
from ..heads import REGISTRY, Head, Softmax
from ..spectrum.replaced import MASK
from .checked_product import weight_of
from .text import Names


@dataclass(frozen=True, eq=False)
class OutputWeights:
    """W and b of an output layer, and what is known of it without a text."""

    weight: Tensor
    """W, (M, d), in the type that it is stored in; float32 where a quantized file was dequantized."""
    bias: Tensor | None
    """b, (M,), −∞ for tokens that are masked."""
    head: Head
    """The head for its kind, sizes and bound; its weights may not be loaded."""
    source: Mapping[str, Any]
    """``path``, ``kind`` and ``head``, and the types of a quantized file."""
    stored: str
    """Type of W in its file, such as ``"bfloat16"`` or ``"Q8_0"``."""
    tied: bool | None = None
    """Whether W is also the input embeddings, if that is known."""
    tokenizer: Names | None = None
    ellipse: Callable[[], Any] = lambda: None
    """Loads the model and returns the `Ellipse` of its final norm, if it has one."""
    unused: tuple[int, ...] = ()
    """Ids of the tokens that the tokenizer names as reserved or unused."""

    @property
    def own_tokens(self) -> int | None:
        """Number of tokens of the tokenizer, which may be less than M."""
        return None if self.tokenizer is None else len(self.tokenizer)


def masked_bias(bias: Tensor, *, scale: float = 1.0) -> Tensor:
    """Return an output bias with −∞ for the tokens that it masks by a large negative number.

    Raises:
        SourceError: for NaN, +∞, or a bias that masks all tokens.
    """
    if not (bias < torch.inf).all() or not bias.isfinite().any():
        raise SourceError("the bias of an output layer must hold finite numbers, and −∞ only for tokens that it masks")
    return bias.where(bias * scale >= MASK + bias.max() * scale, -torch.inf)


def name_of(head: Head | nn.Linear) -> str:
    """Return the name of a registered head, otherwise that of the class; a linear layer is that of a softmax."""
    if isinstance(head, nn.Linear):
        return "softmax"
    return {cls: name for name, cls in REGISTRY.items()}.get(type(head), type(head).__name__)


def weights_of(head: Head | nn.Linear, about: Mapping[str, Any], **more: Any) -> OutputWeights:
    """Return the output layer that a head, or a linear layer before a softmax, is."""
    if isinstance(head, nn.Linear):
        weight = weight_of(head, f"this {type(head).__name__}")
        head = Softmax.of(weight, None if head.bias is None else head.bias.detach())
    bias = None if head.bias is None else masked_bias(head.bias.detach(), scale=getattr(head, "scale", 1.0))
    stored = str(head.weight.dtype).removeprefix("torch.")
    return OutputWeights(head.weight.detach(), bias, head, about, stored, **more)
