"""Beam search: the likeliest responses to a context, from any head's log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.full_precision import full_precision
from ..errors import ConfigurationError
from ..heads import Head
from ..language_models.backbones import State
from ..language_models.model import LanguageModel
from ..language_models.reading import Batch


@dataclass(frozen=True, kw_only=True)
class Beam:
    """Settings of beam search; the defaults are the MoS paper's for Switchboard (§3.1)."""

    size: int = 10
    """Hypotheses of a text that are kept after every token."""
    longest: int = 30
    """Tokens of a response at most; the end of the line is one of them."""
    kept: int = 5
    """Responses of a text that are returned, the likeliest first."""

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        if not (1 <= self.kept <= self.size and self.longest >= 1):
            raise ConfigurationError(
                f"a response needs at least 1 token (longest is {self.longest}), and a beam of {self.size} keeps 1 to "
                f"{self.size} responses (kept is {self.kept})"
            )


class Response(NamedTuple):
    """One response to a context."""

    ids: tuple[int, ...]
    """Its tokens, without the end of the line."""
    log_prob: float
    """Log-probability of the tokens, and of the end of the line unless the response was cut off, in nats."""


@torch.no_grad()
def beam_search(model: LanguageModel, batch: Batch, *, end: int, settings: Beam | None = None) -> list[list[Response]]:
    """Return the likeliest responses to each context of a batch, the likeliest first.

    After each token the ``size`` likeliest hypotheses of a text stay, those that have ended among them, by the sum of
    their tokens' log-probabilities; lengths are not normalized. If there are at most ``size`` hypotheses, the result is
    exact.

    Args:
        model: in evaluation mode; its `Head.log_prob` alone is used.
        batch: the contexts and the first token of every text; `Batch.targets` is not read. Without contexts every text
            starts in the initial state.
        end: id of the token that ends a response.
        settings: by default the MoS paper's.
    """
    settings = settings or Beam()
    search = _Search(batch.inputs.shape[1], end, settings, batch.inputs.device)
    with full_precision():
        hidden, state = model.hidden(batch.inputs[:1], contexts=batch.contexts)
        hidden, state = hidden.repeat_interleave(settings.size, 1), _repeated(state, settings.size)
        chosen = search.extend(model.head, hidden[0])
        for _ in range(settings.longest - 1):
            if not search.goes_on.any():
                break
            hidden, state = model.hidden(search.last, _chosen(state, chosen))
            chosen = search.extend(model.head, hidden[0])
    return search.responses()


def _repeated(state: State, size: int) -> State:
    return tuple(part.repeat_interleave(size, 1) for part in state)


def _chosen(state: State, columns: Tensor) -> State:
    return tuple(part.index_select(1, columns) for part in state)


class _Search:
    """The hypotheses of B texts, ``size`` each."""

    def __init__(self, texts: int, end: int, settings: Beam, device: torch.device) -> None:
        self.end, self.settings, self.shape = end, settings, (texts, settings.size)
        self.scores = torch.full(self.shape, -torch.inf, dtype=torch.float64, device=device)
        self.scores[:, 0] = 0.0  # all hypotheses are alike before the first token: one of them counts
        self.tokens = torch.zeros(*self.shape, 0, dtype=torch.long, device=device)

    @property
    def goes_on(self) -> Tensor:
        """Which hypotheses may still change what is returned, (B, size).

        A score never rises: once the ``kept`` likeliest hypotheses of a text have ended, no other overtakes them.
        """
        ended = (self.tokens == self.end).any(-1)
        is_over = ended[:, : self.settings.kept].all(1, keepdim=True)
        return ~(ended | is_over | self.scores.isneginf())

    @property
    def last(self) -> Tensor:
        """The last token of every hypothesis, (1, B · size)."""
        return self.tokens[..., -1].reshape(1, -1)

    def extend(self, head: Head, hidden: Tensor) -> Tensor:
        """Extend every hypothesis by a token, given its hidden state, (B · size, hidden_size).

        Return which ones the new ones extend, (B · size,).
        """
        (texts, size), vocab, goes_on = self.shape, head.vocab_size, self.goes_on.flatten()
        log_probs = hidden.new_full((texts * size, vocab), -torch.inf)
        log_probs[:, self.end] = 0.0  # a response that has ended stays as it is
        log_probs[goes_on] = head.log_prob(hidden[goes_on])
        totals = self.scores.unsqueeze(-1) + log_probs.view(texts, size, vocab)
        self.scores, places = totals.flatten(1).topk(size)
        parents = places // vocab
        tokens = self.tokens.gather(1, parents.unsqueeze(-1).expand(-1, -1, self.tokens.shape[-1]))
        self.tokens = torch.cat([tokens, (places % vocab).unsqueeze(-1)], -1)
        return (parents + torch.arange(texts, device=parents.device).unsqueeze(1) * size).flatten()

    def responses(self) -> list[list[Response]]:
        """Return the likeliest hypotheses of each text."""
        return [
            [
                Response(tuple(ids[: ids.index(self.end)] if self.end in ids else ids), score)
                for ids, score in list(zip(tokens, scores, strict=True))[: self.settings.kept]
                if score > -torch.inf
            ]
            for tokens, scores in zip(self.tokens.tolist(), self.scores.tolist(), strict=True)
        ]
