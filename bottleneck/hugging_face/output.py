"""A head of this package in the place of a model's output layer."""

from __future__ import annotations

import inspect
from threading import get_ident
from typing import Any, cast

import torch
from torch import Tensor, nn

from .. import heads
from ..core.eager import eagerly
from ..errors import ConfigurationError
from ..heads import Head

BATCHED = 3
"""Dimensions of a batch of sequences of hidden states."""


class OutputLayer(nn.Module):
    """A head in the place of an ``nn.Linear``: hidden states in, log-probabilities out.

    Log-probabilities are logits whose softmax they are themselves, so code that follows may take them for logits.

    Args:
        head: the head.
        scale: factor on the hidden states before the head: the logit scale of a model.
    """

    def __init__(self, head: Head, *, scale: float = 1.0) -> None:
        super().__init__()
        self.head, self.scale, self.input = head, scale, nn.Identity()

    @property
    def weight(self) -> nn.Parameter:
        """The output embeddings W, (M, d)."""
        return self.head.weight

    def states(self, hidden: Tensor) -> Tensor:
        """Return what the head is given: (…, hidden_size) → (…, hidden_size)."""
        scaled: Tensor = self.input(hidden if self.scale == 1 else hidden * self.scale)
        return scaled

    def forward(self, hidden: Tensor) -> Tensor:
        """Return log-probabilities in nats, in float32 or wider: (…, hidden_size) → (…, M)."""
        return self.log_prob(self.states(hidden))

    def log_prob(self, states: Tensor) -> Tensor:
        """Return the head's log-probabilities: (…, hidden_size) → (…, M); three axes are (B, L, hidden_size)."""
        if not self.training or states.dim() != BATCHED:
            return self.head.log_prob(states)
        # Heads take the steps of a sequence first: dropout masks are the same for all of them.
        return self.head.log_prob(states.transpose(0, 1)).transpose(0, 1).contiguous()


class WithheldStates(OutputLayer):
    """An output layer that keeps the hidden states for the model around it, which applies the head to them.

    Only a call between `withhold` and `take`, in the same thread, keeps them; others return log-probabilities. The
    three run outside of compiled code, which knows no threads.
    """

    def __init__(self, head: Head, *, scale: float = 1.0) -> None:
        super().__init__(head, scale=scale)
        self._kept: dict[int, Tensor | None] = {}  # by thread, because several may run one model

    def withhold(self) -> None:
        """Keep the hidden states of the next call."""
        eagerly(_withhold, self._kept)

    def forward(self, hidden: Tensor) -> Tensor:
        """Keep the hidden states and return one zero for each; return log-probabilities if none are waited for."""
        states = self.states(hidden)
        if not eagerly(_keep, self._kept, states):
            return self.log_prob(states)
        return hidden.new_zeros(*states.shape[:-1], 1)

    def take(self) -> Tensor | None:
        """Return the hidden states that were kept, once; ``None`` if the layer was not called."""
        return eagerly(_take, self._kept)


def _withhold(kept: dict[int, Tensor | None]) -> None:
    kept[get_ident()] = None


def _keep(kept: dict[int, Tensor | None], states: Tensor) -> bool:
    """Keep hidden states if they are waited for; return whether they are."""
    if get_ident() not in kept:
        return False
    kept[get_ident()] = states
    return True


def _take(kept: dict[int, Tensor | None]) -> Tensor | None:
    return kept.pop(get_ident(), None)


def head_settings(name: str, layer: nn.Linear, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a head in the place of a linear layer; those not given start it as a softmax, if any do.

    Args:
        name: a registered head.
        layer: the output layer.
        given: settings of the head.

    Raises:
        ConfigurationError: for a head that takes the hidden states of all layers, or a size that the layer decides.
    """
    head = heads.find(name)
    if head.takes_all_layers:
        raise ConfigurationError(
            f"the head {name!r} takes the hidden states of all layers, and the output layer of this model is given "
            "those of the last: choose another head"
        )
    sizes = {"hidden_size": layer.in_features, "vocab_size": layer.out_features}
    for size, expected in sizes.items():
        if given.get(size, expected) != expected:
            raise ConfigurationError(
                f"{size}={given[size]} does not fit the model, whose output layer has {expected:,}: leave {size} out"
            )
    same_size = given.get("embedding_size") in (None, layer.in_features)
    start = dict(head.as_softmax or {}) if same_size else {}
    if "bias" in inspect.signature(head).parameters:
        start["bias"] = layer.bias is not None
    return {**start, **given, **sizes}


def head_for(layer: nn.Linear, name: str, settings: dict[str, Any], *, scale: float = 1.0) -> Head:
    """Return a new head with the embeddings and biases of a linear layer, in its type and on its device.

    W is shared with the layer, and so with input embeddings that it is tied to, unless its size differs.

    Args:
        layer: the output layer.
        name: a registered head.
        settings: all settings of the head; see `head_settings`.
        scale: factor on the model's logits, which the head's hidden states already have.

    Raises:
        ConfigurationError: for an unknown head or setting.
    """
    with torch.device(layer.weight.device):
        head = heads.build(name, **settings).to(layer.weight.dtype)
    if head.weight.shape == layer.weight.shape:
        head.weight = cast(nn.Parameter, layer.weight)
    if head.bias is not None and layer.bias is not None:
        with torch.no_grad():
            head.bias.copy_(layer.bias * scale)
        head.bias.requires_grad_(layer.bias.requires_grad)
    return head
