"""A head on given hidden states."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from ..core.files import sha256_bytes
from ..core.tensor_file import digest
from ..corpora.batches import whole_numbers
from ..errors import ConfigurationError, SourceError
from ..heads import REGISTRY, Head, RankBound, Softmax
from .checked_product import check_layer, weight_of
from .on_text import ModelOnText, masked_bias
from .source import Cost

HALVES = (torch.bfloat16, torch.float16)


@final
class GivenStates(ModelOnText):
    """A head on given hidden states.

    Args:
        layer: a `Head`, or an ``nn.Linear`` that gives the logits of a softmax. A head in bfloat16 or float16 is
            computed in float32, from the same weights.
        hidden: (T, hidden_size), an array, a tensor, or an iterable of (n, hidden_size) blocks.
        targets: (T,), the token that follows each context, or −1 where it is not known.
        path: name of the source, by default that of the head's class.

    Raises:
        ConfigurationError: without hidden states.
        SourceError: for hidden states of another shape, or that are not finite real numbers.
    """

    mismatch: str = ""
    """Why the hidden states do not belong to the head, if that is known."""

    def __init__(self, layer: Head | nn.Linear, *, hidden: Any, targets: Any = None, path: str | None = None) -> None:
        if hidden is None:
            raise ConfigurationError(
                f"a {type(layer).__name__} is measured on hidden states: give hidden=H, of shape (T, hidden_size)"
            )
        self._head = _in_full_precision(layer)
        self._states = _tensor(hidden, self._head.hidden_size)
        if isinstance(layer, nn.Linear):
            check_layer(layer, self._states, f"this {type(layer).__name__}")
        self.contexts = len(self._states)
        self.dtype = str(next(self._head.parameters()).dtype).removeprefix("torch.")
        ids = None if targets is None else _ids(targets, self.contexts, self._head.vocab_size)
        self.targets = None if ids is None or (ids < 0).all() else ids
        names = {cls: name for name, cls in REGISTRY.items()}
        name = names.get(type(self._head), type(layer).__name__)
        about = {"path": path or f"{type(layer).__name__}, hidden states", "kind": "head", "head": name}
        self.description = {**about, "corpus": None, "split": None}

    recorded_bound: RankBound | None = None
    """The bound that was recorded with the states."""

    @property
    def bound(self) -> RankBound:  # type: ignore[override]
        """The bound that was recorded with the states, or that of the head."""
        return self.recorded_bound or super().bound

    @property
    def full_head(self) -> Head:
        """The head, in float32 or float64."""
        return self._head

    def rank_warning(self, eps: float) -> str:
        """Return why the hidden states do not belong to the head, or an empty string."""
        return self.mismatch

    def entry_warning(self) -> str:
        """Return the same as `rank_warning`."""
        return self.mismatch

    def scored(self) -> Self:
        """Return the contexts whose next token is known."""
        part = copy.copy(self)
        if self.targets is not None:
            known = self.targets >= 0
            part.targets, part._states = self.targets[known], self._states[: len(known)][torch.from_numpy(known)]
            part.contexts = len(part._states)
            part.text = None if self.text is None else self.text.of_rows(known)
            vars(part).pop("identity", None)
        return part

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """Hashes of the weights and the hidden states."""
        head = f"{type(self._head).__name__} {sorted(self._head.settings.items())} {digest(self._head.state_dict())}"
        return {"model": sha256_bytes(head.encode() + self._states.cpu().double().numpy().tobytes())}

    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield the given hidden states."""
        weight = next(self._head.parameters())
        return (self._states[rows.start : rows.stop].to(weight) for rows in ranges)

    @property
    def body_cost(self) -> Cost:
        """The memory of the weights and the hidden states, and no operations."""
        numbers = sum(parameter.numel() for parameter in self._head.parameters())
        item = 8 if self.dtype == "float64" else 4
        return Cost(0.0, numbers * item + self._states.numel() * self._states.element_size())


def _in_full_precision(head: Head | nn.Linear) -> Head:
    """Return the head in evaluation mode and in float32 or wider; the given head is not changed."""
    if isinstance(head, nn.Linear):
        weight = weight_of(head, f"this {type(head).__name__}")
        weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
        bias = None if head.bias is None else masked_bias(head.bias.detach().to(weight.dtype))
        return Softmax.of(weight, bias)
    copied = copy.deepcopy(head).requires_grad_(False).eval()
    if copied.bias is not None:
        copied.bias.copy_(masked_bias(copied.bias, scale=getattr(copied, "scale", 1.0)))
    return copied.float() if next(copied.parameters()).dtype in HALVES else copied


def _one_tensor(block: Any) -> Tensor:
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
        states = torch.cat([each.reshape(-1, each.shape[-1]) for each in tensors])
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise SourceError(f"hidden states must be (T, {size}) numbers or blocks of such rows: {error}") from error
    if states.shape[1:] != (size,) or not len(states) or not states.is_floating_point():
        raise SourceError(
            f"the head takes hidden states (T, {size}) of real numbers, not {states.dtype} of shape "
            f"{tuple(states.shape)}"
        )
    if not bool(states.isfinite().all()):
        raise SourceError("the hidden states hold NaN or infinity: only finite numbers can be measured")
    return states


def _ids(targets: Any, contexts: int, vocab_size: int) -> NDArray[np.int64]:
    """Return the token that follows each context, (T,)."""
    ids = whole_numbers(targets, "targets").reshape(-1)
    if len(ids) != contexts or ((ids < -1) | (ids >= vocab_size)).any():
        given = f"{len(ids):,} ids from {ids.min()} to {ids.max()}" if len(ids) else "0"
        raise SourceError(
            f"targets must be {contexts:,} token ids from 0 to {vocab_size - 1:,}, one for each hidden state, not "
            f"{given}"
        )
    return ids
