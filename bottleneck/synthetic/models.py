"""The heads of the experiment, all of one embedding size and without output bias (LMS paper §5.1)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .. import heads
from ..errors import ConfigurationError
from ..heads import Head, MoS

HIDDEN_UNITS = 10
"""Sigmoids of the monotonic network (the paper's K, which it does not state)."""
COMPONENTS = 15
"""Softmaxes of the mixture, as in the language models of both papers."""
KNOTS = 1000
"""Pieces of the PLIF: contexts here are thousands of times fewer than in a text, so fewer than its 10⁵."""


def _plain(name: str, **settings: int) -> Callable[[int, int], Head]:
    return lambda vocab, dim: heads.build(name, hidden_size=dim, vocab_size=vocab, bias=False, **settings)


def _mos(vocab: int, dim: int) -> Head:
    """LMS eq. 11: both projections of the context vector are without bias."""
    head = MoS(hidden_size=dim, vocab_size=vocab, components=COMPONENTS, bias=False)
    torch.nn.init.zeros_(head.get_parameter("contexts.projection.bias").requires_grad_(False))
    return head


MODELS: dict[str, Callable[[int, int], Head]] = {
    "softmax": _plain("softmax"),
    "mos": _mos,
    "lms": _plain("lms-net", hidden_units=HIDDEN_UNITS),
    "lms-plif": _plain("lms-plif", knots=KNOTS),
    "sigsoftmax": _plain("sigsoftmax"),
}
"""Name → head over M tokens with embeddings of size D."""


def check_model(name: str) -> None:
    """Refuse a name that is not in ``MODELS``."""
    if name not in MODELS:
        raise ConfigurationError(f"unknown model {name!r}; known models are {', '.join(MODELS)}")


def build(name: str, *, vocab: int, dim: int, seed: int, device: str = "cpu") -> Head:
    """Return a model whose starting weights depend on the seed alone.

    Raises:
        ConfigurationError: for an unknown model or a size below one.
    """
    check_model(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[name](vocab, dim).to(device)
