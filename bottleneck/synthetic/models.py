"""The heads of the experiment, all of one embedding size and without output bias (Ganea et al. 2019, §5.1)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .. import heads
from ..errors import look_up
from ..heads import Head, MoS

HIDDEN_UNITS = 10
"""Sigmoids of the monotonic network, K in Ganea et al. 2019, who do not state their number."""
COMPONENTS = 15
"""Softmaxes of the mixture, as in the language models of Yang et al. 2018 and Ganea et al. 2019."""
KNOTS = 1000
"""Pieces of the piecewise linear function. A language model has 10⁵; here are far fewer contexts."""


def _plain(name: str, **settings: int) -> Callable[[int, int], Head]:
    return lambda vocab, dim: heads.build(name, hidden_size=dim, vocab_size=vocab, bias=False, **settings)


def _mos(vocab: int, dim: int) -> Head:
    """Return the mixture of Ganea et al. 2019, eq. 11, where both projections of the context vector have no bias."""
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
"""Functions of (M, D) that return a head over M tokens with embeddings of size D, by name."""


def build(name: str, *, vocab: int, dim: int, seed: int, device: str = "cpu") -> Head:
    """Return a model with initial weights drawn from the seed.

    Raises:
        ConfigurationError: for an unknown model or a size below one.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return look_up("model", name, MODELS)(vocab, dim).to(device)
