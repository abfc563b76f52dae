"""An encoder–decoder: a line of a conversation is decoded with attention to the lines before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ...core.checks import check_dropout, check_positive
from ...heads.layers import init_embeddings_
from .base import Backbone, State


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig:
    """Settings of `EncoderDecoder`; the sizes are those of the baseline of Zhao, Zhao and Eskenazi 2017."""

    embedding_size: int = 200
    """Size of the input embeddings; tied embeddings need the head's d."""
    line_size: int = 300
    """Size of the encoder of lines, in each of its two directions."""
    context_size: int = 600
    """Size of the encoder of contexts, which reads the lines' encodings."""
    hidden_size: int = 400
    """Size of the decoder."""
    context_lines: int = 10
    """W, the largest number of lines before a line that it answers."""
    dropout: float = 0.2
    """Probability of dropping a unit: on the embeddings, the encodings of lines and contexts, and the output."""

    def __post_init__(self) -> None:
        """Refuse what no encoder–decoder can have."""
        sizes = "embedding_size", "line_size", "context_size", "hidden_size"
        check_positive(**{name: getattr(self, name) for name in sizes})
        check_positive(context_lines=self.context_lines, at_most=1000)
        check_dropout(dropout=self.dropout)


@final
class EncoderDecoder(Backbone):
    r"""An LSTM encoder of contexts and an LSTM decoder with attention.

    A bidirectional LSTM encodes each line of a context, an LSTM over the lines' last states encodes the context, as
    Zhao et al. 2017 do with GRUs, and a linear map of its last state starts the decoder. With :math:`w_i` the encoding
    of token i of the context's line :math:`l`, and :math:`u_l` that of the context up to this line, the decoder attends
    to

    .. math:: m_i = A w_i + B u_l, \quad α_i \propto \exp(m_i \cdot s_t), \quad
              h_t = \tanh(C [s_t; \textstyle\sum_i α_i m_i])

    where :math:`s_t` is its own state; this is the global attention of Luong et al. 2015 (eq. 5 to 8). Equal lines of a
    batch are encoded once.

    References:
        Zhao, Zhao and Eskenazi 2017, "Learning Discourse-level Diversity for Neural Dialog Models using Conditional
        Variational Autoencoders". Luong, Pham and Manning 2015, "Effective Approaches to Attention-based Neural
        Machine Translation", §3.1.

    Example:
        >>> import torch
        >>> sizes = {"embedding_size": 4, "line_size": 3, "context_size": 5, "hidden_size": 6}
        >>> model = EncoderDecoder(EncoderDecoderConfig(**sizes), vocab_size=10)
        >>> state = model.read(torch.ones(3, 8, 2, dtype=torch.long))  # three lines of eight tokens before two texts
        >>> hidden, state = model(torch.zeros(7, 2, dtype=torch.long), state)
        >>> hidden.shape
        torch.Size([7, 2, 6])
    """

    Config = EncoderDecoderConfig

    def __init__(self, config: EncoderDecoderConfig, *, vocab_size: int, all_layers: bool = False) -> None:
        super().__init__(config, vocab_size=vocab_size, all_layers=all_layers)
        self.hidden_size = config.hidden_size
        self.layer_sizes = (config.hidden_size,)
        self.embedding = nn.Embedding(vocab_size, config.embedding_size)
        init_embeddings_(self.embedding.weight)
        self.dropout = nn.Dropout(config.dropout)
        self.line_encoder = nn.LSTM(config.embedding_size, config.line_size, bidirectional=True)
        self.context_encoder = nn.LSTM(2 * config.line_size, config.context_size)
        self.start = nn.Linear(config.context_size, 2 * config.hidden_size)
        self.token_memory = nn.Linear(2 * config.line_size, config.hidden_size, bias=False)
        self.line_memory = nn.Linear(config.context_size, config.hidden_size, bias=False)
        self.decoder = nn.LSTM(config.embedding_size, config.hidden_size)
        self.combine = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)

    def initial_state(self, batch_size: int) -> State:
        """Return the state after no context; see `Backbone.initial_state`."""
        return self.read(torch.zeros(0, 0, batch_size, dtype=torch.long, device=self.embedding.weight.device))

    def read(self, contexts: Tensor) -> State:
        """Return the decoder's first state and what it attends to, from contexts (W, N, B) with −1 for no token.

        The state is: h and c, (1, B, hidden_size); the memory, (S, B, hidden_size), where S is the number of tokens in
        the longest context; and whether each of its rows is a token, (S, B), bool.
        """
        _, length, batch_size = contexts.shape
        is_token, order = _tokens_first(contexts.flatten(0, 1) >= 0)
        if not len(order):
            memory = self.embedding.weight.new_zeros(0, batch_size, self.hidden_size)
            last = memory.new_zeros(batch_size, self.config.context_size)
        else:
            place, tokens, encodings = self._encode_lines(contexts)
            encoded = self.dropout(self.context_encoder(encodings)[0])
            counts = (contexts[:, 0] >= 0).sum(0)
            columns = torch.arange(batch_size, device=contexts.device)
            last = encoded[(counts - 1).clamp(min=0), columns] * (counts > 0).unsqueeze(1)
            line, token = order // length, order % length
            memory = tokens[place[line, columns], token] + self.line_memory(encoded)[line, columns]
        h, c = self.start(last).unsqueeze(0).chunk(2, -1)
        return h.tanh().contiguous(), c.contiguous(), memory, is_token

    def _encode_lines(self, contexts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Encode the distinct lines of contexts.

        Return the number of each context's lines among them, (W, B), A w of their tokens, (lines, N, hidden_size), and
        the encodings of the contexts' lines, (W, B, 2 line_size).
        """
        lines, length, batch_size = contexts.shape
        distinct, place = contexts.transpose(1, 2).flatten(0, 1).unique(dim=0, return_inverse=True)
        sizes = (distinct >= 0).sum(1)
        inputs = self.dropout(self.embedding(distinct.clamp(min=0)))
        packed = pack_padded_sequence(inputs, sizes.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        outputs, (ends, _) = self.line_encoder(packed)
        states, _ = pad_packed_sequence(outputs, batch_first=True, total_length=length)
        encodings = self.dropout(ends.transpose(0, 1).flatten(1)) * (sizes > 0).unsqueeze(1)
        place = place.view(lines, batch_size)
        return place, self.token_memory(self.dropout(states)), encodings[place]

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Decode with attention; see `Backbone.forward`."""
        h, c, memory, is_token = state
        states, (h, c) = self.decoder(self.dropout(self.embedding(ids)), (h, c))
        scores = torch.einsum("lbh,sbh->bls", states, memory)
        scores = scores.masked_fill(~is_token.T.unsqueeze(1), torch.finfo(scores.dtype).min)
        # Without any token to attend to the weights are those of padding, whose memory is removed below.
        weights = scores.softmax(-1) * is_token.T.unsqueeze(1) if len(memory) else scores
        attended = torch.einsum("bls,sbh->lbh", weights, memory)
        hidden = torch.tanh(self.combine(torch.cat([states, attended], -1)))
        return self.dropout(hidden), (h, c, memory, is_token)


def _tokens_first(is_token: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of the first rows of each column are tokens once these come first, and where they were, (S, B)."""
    order = (~is_token).to(torch.uint8).argsort(dim=0, stable=True)
    counts = is_token.sum(0)
    longest = int(counts.max()) if counts.numel() else 0
    return torch.arange(longest, device=counts.device).unsqueeze(1) < counts, order[:longest]
