"""The base class of output layers: log-probabilities, their negative log-likelihood, and a rank bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from ..core.checks import check_positive, shown, typed
from ..core.eager import eagerly
from ..errors import ConfigurationError
from .blocked import blocked_loss
from .inverse import logits_before
from .layers import init_embeddings_
from .scores import Factors, Reduction, Scores, log_prob, widest


@dataclass(frozen=True)
class RankBound:
    """The largest rank that A = log P can have, from algebra alone; ``None`` where there is no bound."""

    raw: int | None
    """Bound on rank(A)."""
    centered: int | None
    """Bound on the rank of A with each row's mean subtracted."""
    why: str
    """The reason, in one sentence."""


class ParameterSettings(NamedTuple):
    """Optimizer settings of some of a head's parameters. All other parameters have the defaults below."""

    parameters: tuple[nn.Parameter, ...]
    learning_rate_factor: float = 1.0
    """Learning rate of these parameters, as a multiple of the model's."""
    weight_decay: bool = True
    """Whether weight decay may act on these parameters; the optimizer's settings must also select them."""


class Head(nn.Module, ABC):
    """An output layer: hidden states in, next-token log-probabilities out.

    Subclasses are final. Each computes in log space throughout; nothing is ever added inside a logarithm,
    because ``log(p + ε)`` is itself a nonlinearity that hides a low rank.

    The constructor names every setting as an argument, with its type and default, and keeps its value in the attribute
    of the same name. Configuration files take names, types and defaults from there.

    Args:
        hidden_size: size of the hidden states that come in.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        bias: whether every token has a bias.

    Raises:
        ConfigurationError: for a size below one.
    """

    takes_all_layers: ClassVar[bool] = False
    """Whether the head takes the concatenated hidden states of all layers; it then has the argument ``layer_sizes``."""
    as_softmax: ClassVar[Mapping[str, Any] | None] = None
    """Settings with which a new head is exactly the softmax of its embeddings and biases; ``None`` if it cannot be.
    They need hidden states of size d."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Check the types of arguments."""
        super().__init_subclass__(**keywords)
        if "__init__" in vars(cls):
            cls.__init__ = typed(cls.__init__)  # type: ignore[method-assign]

    def __init__(
        self, hidden_size: int, vocab_size: int, *, embedding_size: int | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        check_positive(hidden_size=hidden_size, vocab_size=vocab_size, embedding_size=embedding_size)
        self.hidden_size, self.vocab_size = hidden_size, vocab_size
        self.embedding_size = embedding_size or hidden_size
        self.weight = nn.Parameter(torch.empty(vocab_size, self.embedding_size))
        init_embeddings_(self.weight)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.contexts: Any = None
        self.mixture: Any = None
        self.function: nn.Module | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that make such a head: ``type(head)(**head.settings)``."""
        attributes, names = vars(self) | {"bias": self.bias is not None}, signature(type(self)).parameters
        if missing := [name for name in names if name not in attributes]:
            raise ConfigurationError(f"{type(self).__name__} must keep its argument {missing[0]!r} as an attribute")
        return {name: attributes[name] for name in names}

    def tie(self, embedding: nn.Embedding) -> None:
        """Share the output embeddings W with the input embeddings, both of shape (M, d)."""
        if embedding.weight.shape != self.weight.shape:
            raise ConfigurationError(
                f"tied embeddings need one size: the input's are {tuple(embedding.weight.shape)}, the output's "
                f"{tuple(self.weight.shape)}; set both embedding sizes alike or tie_embeddings=false"
            )
        self.weight = cast(nn.Parameter, embedding.weight)

    def scores(self, hidden: Tensor) -> Scores:
        """Return context vectors (…, K, d) and log-priors (…, K) of hidden states (…, hidden_size); see `Scores`.

        A subclass builds ``contexts``, which makes the context vectors; ``mixture``, which makes the log-priors; and
        ``function``, which is applied to the logits. Without ``contexts`` the hidden state is the one context vector.
        """
        contexts = hidden.unsqueeze(-2) if self.contexts is None else self.contexts(hidden)
        log_prior = None if self.mixture is None else self.mixture(hidden)
        return Scores((Factors(contexts, self.weight, self.bias),), log_prior, self.function)

    @property
    def has_linear_logits(self) -> bool:
        """Whether every token has one logit, linear in one context vector, and its probability increases with it."""
        return False

    @property
    @abstractmethod
    def rank_bound(self) -> RankBound:
        """The bound that algebra sets on the rank of the log-probability matrix."""

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Return log P(x | hidden) in nats, in float32 or wider: (…, hidden_size) → (…, M).

        Raises:
            ConfigurationError: for hidden states of another size or type.
        """
        self._check_hidden(hidden)
        return log_prob(self.scores(hidden))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return `log_prob`; a loss that holds no matrix of log-probabilities is `nll`."""
        return self.log_prob(hidden)

    def nll(
        self, hidden: Tensor, targets: Tensor, *, reduction: Reduction = "mean", ignore_index: int | None = None
    ) -> Tensor:
        """Return −log P(target | hidden) in nats without ever holding all contexts' log-probabilities.

        It has first derivatives by autograd, and no transforms of ``torch.func``. Under autocast to float16 a
        probability below 6e-8 has no part in the gradients, whatever the loss is scaled by; bfloat16 keeps it.

        Args:
            hidden: float, (…, hidden_size).
            targets: int64, (…), token ids.
            reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the shape of ``targets``. The mean of no target is
                NaN, as in torch.
            ignore_index: target value that is left out: the mean is over all other targets, and with ``"none"`` the
                loss of such a target is 0. A CUDA device is synchronized to find these targets.

        Returns:
            The loss in float32, or in float64 for hidden states in float64. A target of probability 0 has the
            loss +∞ and a finite gradient.

        Raises:
            ConfigurationError: for hidden states of another size or type, targets of another shape or type, an
                unknown reduction, or, on the CPU, a target that is not a token id.
        """
        return eagerly(Head._nll, self, hidden, targets, reduction, ignore_index)  # compiled, it would unroll a loop

    def _nll(self, hidden: Tensor, targets: Tensor, reduction: Reduction, ignore_index: int | None) -> Tensor:
        self._check(hidden, targets, reduction)
        ids = targets.reshape(-1)
        counted = None if ignore_index is None else torch.nonzero(ids != ignore_index).squeeze(1)
        ids = ids if counted is None else ids[counted]
        self._check_range(ids)
        loss = blocked_loss(self.scores(hidden).rows(counted), ids, reduction=reduction)
        if reduction != "none":
            return loss.to(widest(hidden.dtype))
        if counted is not None:
            loss = loss.new_zeros(targets.numel()).index_put((counted,), loss)
        return loss.view(targets.shape)

    def penalty(self, hidden: Tensor) -> Tensor | None:
        """Return the head's own regularization, a scalar to add to the training loss, or ``None`` for nothing."""
        return None

    @torch.no_grad()
    def init_bias(self, log_probs: Tensor) -> None:
        """Set the output bias so that a context vector of 0 predicts this distribution; without a bias do nothing.

        Args:
            log_probs: float, (M,), all finite.
        """
        if self.bias is not None:
            self.bias.copy_(self._logits_of(log_probs))

    def _logits_of(self, log_probs: Tensor) -> Tensor:
        """Return logits for which this head's log-probabilities are ``log_probs``."""
        return log_probs if self.function is None else logits_before(self.function, log_probs)

    def parameter_settings(self) -> list[ParameterSettings]:
        """Return settings of parameters that need their own, by default those of ``function``; each parameter once."""
        function: Any = self.function
        return function.parameter_settings() if hasattr(function, "parameter_settings") else []

    def _check_hidden(self, hidden: Tensor) -> None:
        """Refuse hidden states of another size than the head's or, without autocast, of another type."""
        if not isinstance(hidden, Tensor):
            raise ConfigurationError(f"{type(self).__name__} takes a tensor of hidden states, not {shown(hidden)}")
        if hidden.shape[-1:] != (self.hidden_size,):
            raise ConfigurationError(
                f"{type(self).__name__} takes hidden states of size {self.hidden_size}, not shape {tuple(hidden.shape)}"
            )
        if hidden.dtype != self.weight.dtype and not torch.is_autocast_enabled(hidden.device.type):
            raise ConfigurationError(
                f"{type(self).__name__} is in {self.weight.dtype} and takes hidden states of that type, not "
                f"{hidden.dtype}: convert one to the other's, or use torch.autocast"
            )

    def _check(self, hidden: Tensor, targets: Tensor, reduction: Reduction) -> None:
        """Refuse targets whose shape is not that of the hidden states without the last dimension."""
        self._check_hidden(hidden)
        if not isinstance(targets, Tensor):
            raise ConfigurationError(f"targets must be a tensor of token ids, not {shown(targets)}")
        if targets.shape != hidden.shape[:-1]:
            raise ConfigurationError(
                f"hidden states of shape {tuple(hidden.shape)} need targets of shape {tuple(hidden.shape[:-1])}, "
                f"not {tuple(targets.shape)}"
            )
        if targets.dtype != torch.int64:
            raise ConfigurationError(f"targets must be token ids of type int64, not {targets.dtype}")
        if reduction not in get_args(Reduction):
            raise ConfigurationError(
                f"unknown reduction {reduction!r}; known reductions are {', '.join(get_args(Reduction))}"
            )

    def _check_range(self, ids: Tensor) -> None:
        """Refuse ids outside the vocabulary on the CPU. CUDA's own kernels check them, without a synchronization."""
        if ids.device.type != "cpu" or not ids.numel():
            return
        low, high = (bound.item() for bound in ids.aminmax())
        if low < 0 or high >= self.vocab_size:
            raise ConfigurationError(
                f"target {low if low < 0 else high} is not one of the token ids 0 to {self.vocab_size - 1}; give "
                "ignore_index to leave targets out"
            )
