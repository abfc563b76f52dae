"""A head on given hidden states."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from ..core.tensor_file import digest
from ..corpora.batches import IGNORED, whole_numbers
from ..errors import ConfigurationError, SourceError
from ..heads import Head, RankBound, Softmax
from ..spectrum.blocks import as_array
from .checked_product import check_layer, weight_of
from .layer import OutputWeights, masked_bias, name_of, weights_of
from .on_text import Model, ModelOnText
from .reading import PADDING, Reading, in_order
from .source import Cost

AT_ONCE = 1 << 14
"""Hidden states that are looked at together."""
HALVES = (torch.bfloat16, torch.float16)


@final
class GivenStates(Model):
    """A head on given hidden states.

    Args:
        layer: a `Head`, or an ``nn.Linear`` that gives the logits of a softmax. A head in bfloat16 or float16 is
            computed in float32, from the same weights.
        hidden: (T, hidden_size), an array, a tensor, or an iterable of (n, hidden_size) blocks.
        path: name of the source, by default that of the head's class.

    Raises:
        ConfigurationError: without hidden states.
        SourceError: for hidden states of another shape, or that are not finite real numbers.
    """

    recorded_bound: RankBound | None = None
    """The bound that was recorded with the states."""

    def __init__(self, layer: Head | nn.Linear, *, hidden: Any, path: str | None = None) -> None:
        if hidden is None:
            raise ConfigurationError(
                f"a {type(layer).__name__} is measured on hidden states: give hidden=H, of shape (T, hidden_size)"
            )
        self._head = _in_full_precision(layer)
        self.hidden = _tensor(hidden, self._head.hidden_size)
        """(T, hidden_size), in their own type."""
        if isinstance(layer, nn.Linear):
            check_layer(layer, self.hidden, f"this {type(layer).__name__}")
        self.body_dtype = self.hidden.dtype
        self.dtype = str(self._head.weight.dtype).removeprefix("torch.")
        path = path or f"{type(layer).__name__}, hidden states"
        self.about = {"path": path, "kind": "head", "head": name_of(self._head)}

    @cached_property
    def identity(self) -> Mapping[str, str]:
        """Hash of the weights and the hidden states."""
        head = f"{type(self._head).__name__} {sorted(self._head.settings.items())} {digest(self._head.state_dict())}"
        total = hashlib.sha256(head.encode())
        for part in self.hidden.split(AT_ONCE):
            total.update(part.cpu().double().numpy().tobytes())
        return {"model": total.hexdigest()}

    @property
    def skeleton(self) -> Head:
        """The head, in float32 or float64."""
        return self._head

    def head(self, sample: Tensor) -> Head:
        """Return the head."""
        return self._head

    def bound(self, head: Head) -> RankBound:
        """Return the bound that was recorded with the states, or that of the head."""
        return self.recorded_bound or head.rank_bound

    def layer(self) -> OutputWeights:
        """Return the head as an output layer."""
        return weights_of(self._head, self.about)

    def states(self, reading: Reading) -> Tensor:
        """Return the given hidden states."""
        return self.hidden

    def cost(self, tokens: int, contexts: int) -> Cost:
        """Return the memory of the weights and the hidden states, and no operations."""
        numbers = sum(parameter.numel() for parameter in self._head.parameters())
        item = 8 if self.dtype == "float64" else 4
        return Cost(0.0, numbers * item + self.hidden.numel() * self.hidden.element_size())


def given_states(layer: Head | nn.Linear, *, hidden: Any, targets: Any = None, path: str | None = None) -> ModelOnText:
    """Open a head on given hidden states; see `GivenStates`.

    ``targets`` are the tokens that follow each context, (T,), or −1 where one is not known.
    """
    model = GivenStates(layer, hidden=hidden, path=path)
    contexts, vocab_size = len(model.hidden), model.skeleton.vocab_size
    following = np.full(contexts, PADDING) if targets is None else _ids(targets, contexts, vocab_size)
    return ModelOnText(model, in_order(following), None)


def _in_full_precision(head: Head | nn.Linear) -> Head:
    """Return the head in evaluation mode and in float32 or wider; the given head is not changed."""
    if isinstance(head, nn.Linear):
        weight = weight_of(head, f"this {type(head).__name__}")
        weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
        bias = None if head.bias is None else masked_bias(head.bias.detach().to(weight.dtype))
        copied: Head = Softmax.of(weight, bias)
    else:
        copied = copy.deepcopy(head).requires_grad_(False).eval()
        if copied.bias is not None:
            copied.bias.copy_(masked_bias(copied.bias, scale=getattr(copied, "scale", 1.0)))
    if not (finite := copied.weight.isfinite().all(1)).all():
        row = int(finite.int().argmin())
        raise SourceError(f"row {row:,} of W holds a number that is not finite: the weights are damaged")
    return copied.float() if next(copied.parameters()).dtype in HALVES else copied


def _one_tensor(block: Any) -> Tensor:
    if isinstance(block, np.ndarray) and block.dtype.kind == "f":  # torch takes no other order of bytes or rows
        return torch.from_numpy(np.require(as_array(block), requirements=["C", "W"]))
    if isinstance(block, Tensor | np.ndarray | list | tuple):
        return torch.as_tensor(block)
    return from_dlpack(block) if hasattr(block, "__dlpack__") else torch.as_tensor(np.array(block))


def _tensor(hidden: Any, size: int) -> Tensor:
    """Return hidden states as one tensor, (T, size), in their own type."""
    shapes = [tuple(getattr(states, "shape", ())) for states in hidden] if isinstance(hidden, tuple) else []
    if len(shapes) > 1 and len({*shapes}) == 1 and len(shapes[0]) == 3:  # as transformers returns them
        raise SourceError(
            f"hidden is a tuple of {len(hidden)} tensors of one shape, as the hidden states of all layers are: give "
            "those before the output layer, such as hidden_states[-1], or a list of blocks"
        )
    try:
        blocks = [hidden] if hasattr(hidden, "shape") else list(hidden)
        if any(isinstance(block, np.ma.MaskedArray) for block in blocks):
            raise TypeError("a masked array: leave out what is masked")
        tensors = [_one_tensor(block).detach() for block in blocks]
        if any(each.ndim > 3 for each in tensors):
            raise ValueError("more than three dimensions, as the hidden states of all layers have: give the last layer")
        if not any(each.numel() for each in tensors):
            raise ValueError("they are empty, and each context needs a row")
        rows = [each.reshape(-1, each.shape[-1]) for each in tensors]
        states = rows[0] if len(rows) == 1 else torch.cat(rows)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise SourceError(f"hidden states must be (T, {size}) numbers or blocks of such rows: {error}") from error
    if states.shape[1:] != (size,) or not states.is_floating_point():
        raise SourceError(
            f"the head takes hidden states (T, {size}) of real numbers, not {states.dtype} of shape "
            f"{tuple(states.shape)}"
        )
    if not all(bool(part.isfinite().all()) for part in states.split(AT_ONCE)):
        raise SourceError("the hidden states hold NaN or infinity: only finite numbers can be measured")
    return states


def _ids(targets: Any, contexts: int, vocab_size: int) -> NDArray[np.int64]:
    """Return the token that follows each context, (T,)."""
    ids = whole_numbers(targets, "targets").reshape(-1)
    ids = np.where(ids == IGNORED, PADDING, ids)
    if len(ids) != contexts or ((ids < -1) | (ids >= vocab_size)).any():
        given = f"{len(ids):,} ids from {ids.min()} to {ids.max()}" if len(ids) else "0"
        raise SourceError(
            f"targets must be {contexts:,} token ids from 0 to {vocab_size - 1:,}, or -1 where unknown, one for each "
            f"hidden state, not {given}"
        )
    return ids
