"""Output layers, one file each, all exact in log space.

To add one: write a final subclass of `Head` (or of `LogLinear` or `Pointwise`) in a file of its own and enter
it in ``REGISTRY``; the contract test then runs over it.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..errors import ConfigurationError
from .base import Head, HeadConfig, RankBound
from .lms_net import LMSNet
from .lms_plif import LMSPLIF
from .log_linear import LogLinear
from .moc import MoC
from .mos import MoS
from .pointwise import Pointwise
from .scores import Factors, Scores
from .sigsoftmax import Sigsoftmax
from .softmax import Softmax

REGISTRY: dict[str, type[Head]] = {
    "softmax": Softmax,
    "moc": MoC,
    "mos": MoS,
    "sigsoftmax": Sigsoftmax,
    "lms-plif": LMSPLIF,
    "lms-net": LMSNet,
}


def find(name: str) -> type[Head]:
    """Return the class registered under ``name``.

    Raises:
        ConfigurationError: for an unknown name; the text lists the known ones.
    """
    if name not in REGISTRY:
        raise ConfigurationError(f"unknown head {name!r}; known heads are {', '.join(REGISTRY)}")
    return REGISTRY[name]


def build(name: str, **settings: Any) -> Head:
    """Return a new head in float32 on the default device.

    Args:
        name: one of ``REGISTRY``.
        settings: fields of the head's configuration class, ``hidden_size`` and ``vocab_size`` among them.

    Raises:
        ConfigurationError: for an unknown name or setting, or a size below one.

    Example:
        >>> build("mos", hidden_size=8, vocab_size=20, components=2).vocab_size
        20
    """
    return find(name)(**settings)


def settings(name: str) -> tuple[str, ...]:
    """Return the names of a head's own settings: all but the two sizes its surroundings decide."""
    given = {"hidden_size", "vocab_size"}
    return tuple(field.name for field in fields(find(name).Config) if field.name not in given)


__all__ = [
    "LMSPLIF",
    "REGISTRY",
    "Factors",
    "Head",
    "HeadConfig",
    "LMSNet",
    "LogLinear",
    "MoC",
    "MoS",
    "Pointwise",
    "RankBound",
    "Scores",
    "Sigsoftmax",
    "Softmax",
    "build",
    "find",
    "settings",
]
