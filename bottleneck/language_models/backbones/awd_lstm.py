"""AWD-LSTM: LSTM layers of different sizes, with dropout on their weights and on whole sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from ...core.checks import check_dropout, check_positive
from ...errors import ConfigurationError
from ...heads.layers import drop_weights, drop_words, init_embeddings_, locked_dropout
from .base import Backbone, Encoding, State

DROPOUTS = ("dropout_embedding", "dropout_input", "dropout_hidden", "dropout_output", "weight_drop")


@dataclass(frozen=True, kw_only=True)
class AWDLSTMConfig:
    """Settings of `AWDLSTM`; the defaults are those of Merity et al. 2018 for Penn Treebank."""

    embedding_size: int = 400
    """Size of the input embeddings; tied embeddings need the head's d."""
    hidden_sizes: Sequence[int] = (1150, 1150, 400)
    """Size of each layer, the first layer first."""
    dropout_embedding: float = 0.1
    """Probability of dropping a word's embedding wherever it occurs in a segment."""
    dropout_input: float = 0.4
    """Probability of dropping a unit of the embeddings, the same ones at all tokens of a segment."""
    dropout_hidden: float = 0.25
    """Probability of dropping a unit between the layers, the same ones at all tokens of a segment."""
    dropout_output: float = 0.4
    """Probability of dropping a unit of the last layer's hidden states, the same ones at all tokens of a segment."""
    weight_drop: float = 0.5
    """Probability of dropping a hidden-to-hidden weight for a whole segment."""
    activation_penalty: float = 2.0
    """α, the weight of the activation regularization (AR)."""
    temporal_penalty: float = 1.0
    """β, the weight of the temporal activation regularization (TAR)."""

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        check_positive(embedding_size=self.embedding_size, hidden_sizes=min(self.hidden_sizes, default=0))
        check_dropout(**{name: getattr(self, name) for name in DROPOUTS})
        for name in ("activation_penalty", "temporal_penalty"):
            if not 0 <= (weight := getattr(self, name)) < float("inf"):
                raise ConfigurationError(f"{name} must be at least 0 and finite, not {weight}")


@final
class AWDLSTM(Backbone):
    r"""The encoder of an LSTM (long short-term memory) language model with weight drop (Merity et al. 2018).

    In training, each segment of a batch, or each part of it that is processed at once, draws one mask for each
    hidden-to-hidden matrix (DropConnect) and one for each sequence of vectors (variational dropout, Gal and Ghahramani
    2016); in eval mode nothing is dropped. The penalty is

    .. math:: α\, \mathrm{mean}(\tilde h_t^2) + β\, \mathrm{mean}\big((h_{t+1} - h_t)^2\big)

    with the last layer's hidden states before (:math:`h`) and after (:math:`\tilde h`) dropout.

    References:
        Merity, Keskar and Socher 2018, "Regularizing and Optimizing LSTM Language Models", §2 and §4.

    Example:
        >>> import torch
        >>> model = AWDLSTM(AWDLSTMConfig(embedding_size=4, hidden_sizes=(6, 5)), vocab_size=10)
        >>> hidden, state = model(torch.zeros(7, 2, dtype=torch.long), model.initial_state(2))
        >>> hidden.shape
        torch.Size([7, 2, 5])
    """

    Config = AWDLSTMConfig

    def __init__(self, config: AWDLSTMConfig, *, vocab_size: int, all_layers: bool = False) -> None:
        super().__init__(config, vocab_size=vocab_size, all_layers=all_layers)
        sizes = tuple(config.hidden_sizes)
        self.layer_sizes = sizes if all_layers else sizes[-1:]
        self.hidden_size = sum(self.layer_sizes)
        self.embedding = nn.Embedding(vocab_size, config.embedding_size)
        init_embeddings_(self.embedding.weight)
        inputs = (config.embedding_size, *sizes[:-1])
        self.layers = nn.ModuleList(nn.LSTM(before, size) for before, size in zip(inputs, sizes, strict=True))

    def initial_state(self, batch_size: int) -> State:
        """Return zeros: for each layer in turn two tensors (1, B, its size)."""
        sizes = [size for size in self.config.hidden_sizes for _ in ("h", "c")]
        return tuple(self.embedding.weight.new_zeros(1, batch_size, size) for size in sizes)

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Encode a segment of text; see `Backbone.forward`."""
        hidden, after, _ = self.encode(ids, state)
        return hidden, after

    def encode(self, ids: Tensor, state: State) -> Encoding:
        """Encode a segment of text with the penalty on its activations; see `Backbone.encode`."""
        config, training = self.config, self.training
        inputs = drop_words(self.embedding, ids, config.dropout_embedding, training=training)
        inputs = locked_dropout(inputs, config.dropout_input, training=training)
        outputs, after = [], []
        for place, layer in enumerate(self.layers, start=1):
            raw, new = _run(layer, inputs, state[2 * place - 2 : 2 * place], config.weight_drop if training else 0.0)
            last = place == len(self.layers)
            inputs = locked_dropout(raw, config.dropout_output if last else config.dropout_hidden, training=training)
            outputs.append(inputs)
            after += new
        hidden = torch.cat(outputs[-len(self.layer_sizes) :], -1)
        return Encoding(hidden, tuple(after), self._penalty(raw, outputs[-1]))

    def _penalty(self, raw: Tensor, dropped: Tensor) -> Tensor:
        wide = torch.promote_types(raw.dtype, torch.float32)
        penalty = self.config.activation_penalty * dropped.to(wide).square().mean()
        if len(raw) > 1:
            penalty = penalty + self.config.temporal_penalty * raw.to(wide).diff(dim=0).square().mean()
        return penalty


def _run(layer: nn.Module, inputs: Tensor, state: State, weight_drop: float) -> tuple[Tensor, list[Tensor]]:
    """Run torch's fused kernel over a segment, with some hidden-to-hidden weights dropped; the layer is not changed."""
    if not weight_drop:
        hidden, after = layer(inputs, state)
        return hidden, list(after)
    assert isinstance(layer, nn.LSTM)
    weights = drop_weights(layer, weight_drop)
    hidden, *new = torch._VF.lstm(inputs, state, weights, True, 1, 0.0, True, False, False)
    return hidden, new
