"""Output layers, all exact in log space.

To add one: write a final subclass of `Combination`, or of `Head` itself, and enter it in ``REGISTRY``; the contract
test then runs over it. Another package adds its own through an entry point. See docs/extending.md.
"""

from __future__ import annotations

import inspect
from typing import Any

from ..core import plugins
from ..errors import ConfigurationError
from .base import Head, ParameterSettings, RankBound
from .combination import LMSPLIF, Combination, GeneralizedSigsoftmax, LMSNet, MoC, MoS, MoSPLIF, Sigsoftmax, Softmax
from .doc import DOC
from .mixtape import Mixtape
from .scores import Factors, Scores

REGISTRY: dict[str, type[Head]] = {
    "softmax": Softmax,
    "moc": MoC,
    "mos": MoS,
    "sigsoftmax": Sigsoftmax,
    "gss": GeneralizedSigsoftmax,
    "lms-plif": LMSPLIF,
    "lms-net": LMSNet,
    "mos-plif": MoSPLIF,
    "doc": DOC,
    "mixtape": Mixtape,
}


def find(name: str) -> type[Head]:
    """Return the class registered under ``name``, here or by an installed package (see `plugins`).

    Raises:
        ConfigurationError: for an unknown name; the text lists the known ones. Also for a package's head that
            does not load.
    """
    head: type[Head] = plugins.find_class("heads", name, Head, REGISTRY, "head")
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in inspect.signature(head).parameters.values()):
        raise ConfigurationError(
            f"the constructor of the head {name!r} ({head.__name__}) takes arbitrary keyword arguments; name each "
            "setting as an argument of its own"
        )
    return head


def build(name: str, **settings: Any) -> Head:
    """Return a new head in float32 on the default device.

    Args:
        name: one of ``REGISTRY``, or of an installed package.
        settings: arguments of the head's class, ``hidden_size`` and ``vocab_size`` among them.

    Raises:
        ConfigurationError: for an unknown name or setting, or a size below one.

    Example:
        >>> build("mos", hidden_size=8, vocab_size=20, components=2).vocab_size
        20
    """
    head = find(name)
    taken = inspect.signature(head).parameters
    if unknown := sorted(settings.keys() - taken.keys()):
        raise ConfigurationError(f"{head.__name__} has no setting {unknown[0]!r}; its settings are {', '.join(taken)}")
    needed = (name for name, each in taken.items() if each.default is each.empty and each.kind != each.VAR_KEYWORD)
    if missing := [name for name in needed if name not in settings]:
        raise ConfigurationError(f"{head.__name__} needs {' and '.join(missing)}")
    return head(**settings)


def parameters(name: str) -> dict[str, inspect.Parameter]:
    """Return a head's settings, with type and default, without the sizes that the backbone and corpus decide."""
    of_the_model = {"hidden_size", "vocab_size", "layer_sizes"}
    arguments = inspect.signature(find(name), eval_str=True).parameters
    return {key: parameter for key, parameter in arguments.items() if key not in of_the_model}


__all__ = [
    "DOC", "LMSPLIF", "REGISTRY", "Combination", "Factors", "GeneralizedSigsoftmax", "Head", "LMSNet", "Mixtape", "MoC",
    "MoS", "MoSPLIF", "ParameterSettings", "RankBound", "Scores", "Sigsoftmax", "Softmax", "build", "find",
    "parameters",
]  # fmt: skip
