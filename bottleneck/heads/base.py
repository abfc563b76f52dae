"""What every output layer offers: log-probabilities, their negative log-likelihood, and a rank bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from ..embeddings import init_embeddings_
from ..errors import ConfigurationError

Reduction = Literal["mean", "sum", "none"]


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """Settings of an output layer: M = ``vocab_size`` rows of ``embedding_size`` = d weights."""

    hidden_size: int
    """Size of the hidden states that come in."""
    vocab_size: int
    """M, the number of tokens."""
    embedding_size: int | None = None
    """d, the size of the output embeddings; ``None`` takes ``hidden_size``."""
    bias: bool = True
    """Whether every token has a bias."""

    def __post_init__(self) -> None:
        """Refuse sizes that are not positive."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise ConfigurationError(f"{field.name} must be at least 1, not {value}")


@dataclass(frozen=True)
class RankBound:
    """The largest rank that A = log P can have, from algebra alone; ``None`` where there is no bound."""

    raw: int | None
    """Bound on rank(A)."""
    centered: int | None
    """Bound on the rank of A with each row's mean subtracted."""
    why: str
    """The reason, in one sentence."""


class Factors(NamedTuple):
    """Logits as ``contexts @ weight.T + bias``: the log-linear form (MoS paper eq. 1)."""

    contexts: Tensor
    """H, shape (…, d)."""
    weight: Tensor
    """W, shape (M, d)."""
    bias: Tensor | None
    """b, shape (M,)."""


class Head(nn.Module, ABC):
    """An output layer: hidden states in, next-token log-probabilities out.

    Subclasses are final. Each computes in log space throughout; nothing is ever added inside a logarithm,
    because ``log(p + ε)`` is itself a nonlinearity that hides a low rank.

    Raises:
        ConfigurationError: for an unknown setting or a size below one.
    """

    Config: ClassVar[type[HeadConfig]]

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        known = [field.name for field in fields(self.Config)]
        if unknown := sorted(set(settings) - set(known)):
            raise ConfigurationError(
                f"{type(self).__name__} has no setting {unknown[0]!r}; its settings are {', '.join(known)}"
            )
        self.config = self.Config(**settings)
        self.hidden_size = self.config.hidden_size
        self.vocab_size = self.config.vocab_size
        self.embedding_size = self.config.embedding_size or self.config.hidden_size
        self.weight = nn.Parameter(torch.empty(self.vocab_size, self.embedding_size))
        init_embeddings_(self.weight)
        self.bias = nn.Parameter(torch.zeros(self.vocab_size)) if self.config.bias else None

    def tie(self, embedding: nn.Embedding) -> None:
        """Share the output embeddings W with the input embeddings, both of shape (M, d)."""
        if embedding.weight.shape != self.weight.shape:
            raise ConfigurationError(
                f"tied embeddings need one size: the input's are {tuple(embedding.weight.shape)}, the output's "
                f"{tuple(self.weight.shape)}; set both embedding sizes alike or tie_embeddings=false"
            )
        self.weight = cast(nn.Parameter, embedding.weight)

    def check_targets(self, hidden: Tensor, targets: Tensor, reduction: Reduction) -> None:
        """Refuse targets that do not stand one to one beside the hidden states: they would be paired wrongly."""
        if targets.shape != hidden.shape[:-1]:
            raise ConfigurationError(
                f"hidden states of shape {tuple(hidden.shape)} need targets of shape {tuple(hidden.shape[:-1])}, "
                f"not {tuple(targets.shape)}"
            )
        if reduction not in get_args(Reduction):
            raise ConfigurationError(
                f"unknown reduction {reduction!r}; known reductions are {', '.join(get_args(Reduction))}"
            )

    @abstractmethod
    def log_prob(self, hidden: Tensor) -> Tensor:
        """Return log P(x | hidden) in nats: (…, hidden_size) → (…, M)."""

    @abstractmethod
    def nll(self, hidden: Tensor, targets: Tensor, *, reduction: Reduction = "mean") -> Tensor:
        """Return −log P(target | hidden) in nats without ever holding all contexts' log-probabilities.

        Args:
            hidden: float, (…, hidden_size).
            targets: int64, (…), token ids.
            reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the shape of ``targets``.

        Raises:
            ConfigurationError: for targets of another shape, or an unknown reduction.
        """

    @property
    @abstractmethod
    def rank_bound(self) -> RankBound:
        """What algebra says of the rank of the log-probability matrix."""
