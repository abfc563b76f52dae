"""Beam search: the likeliest responses to a context, from any head's log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.devices import sum_type
from ..core.full_precision import full_precision
from ..errors import ConfigurationError
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
    texts, size, vocab = batch.inputs.shape[1], settings.size, model.head.vocab_size
    device = batch.inputs.device
    scores = torch.full((texts, size), -torch.inf, dtype=sum_type(device), device=device)
    scores[:, 0] = 0.0  # all hypotheses are alike before the first token: one of them counts
    tokens = torch.zeros(texts, size, 0, dtype=torch.long, device=device)
    first_of_text = torch.arange(texts, device=device).unsqueeze(1) * size
    with full_precision():
        hidden, state = model.hidden(batch.inputs[:1], contexts=batch.contexts)
        hidden, state = hidden.repeat_interleave(size, 1), tuple(part.repeat_interleave(size, 1) for part in state)
        for step in range(settings.longest):
            goes_on = _goes_on(tokens == end, scores, settings.kept).flatten()
            if not goes_on.any():
                break
            if step:
                hidden, state = model.hidden(tokens[..., -1].reshape(1, -1), state)
            log_probs = hidden.new_full((texts * size, vocab), -torch.inf)
            log_probs[:, end] = 0.0  # a response that has ended stays as it is
            log_probs[goes_on] = model.head.log_prob(hidden[0, goes_on])
            scores, places = (scores.unsqueeze(-1) + log_probs.view(texts, size, vocab)).flatten(1).topk(size)
            parents = places // vocab
            columns = (parents + first_of_text).flatten()
            parts = tokens.flatten(0, 1)[columns].view(texts, size, step), (places % vocab).unsqueeze(-1)
            tokens = torch.cat(parts, -1)
            state = tuple(part.index_select(1, columns) for part in state)
    return [
        [
            Response(tuple(ids[: ids.index(end)] if end in ids else ids), score)
            for ids, score in list(zip(*hypotheses, strict=True))[: settings.kept]
            if score > -torch.inf
        ]
        for hypotheses in zip(tokens.tolist(), scores.tolist(), strict=True)
    ]


def _goes_on(ends: Tensor, scores: Tensor, kept: int) -> Tensor:
    """Return which hypotheses may still change what is returned, (B, size), given which tokens end one.

    A score never rises: once the ``kept`` likeliest hypotheses of a text have ended, no other overtakes them.
    """
    ended = ends.any(-1)
    return ~(ended | ended[:, :kept].all(1, keepdim=True) | scores.isneginf())
