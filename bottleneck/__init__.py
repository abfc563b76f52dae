"""How much of the next-token distribution can a language model's output layer express?

Importing this package loads neither torch nor matplotlib: names are looked up when they are first used
(PEP 562).
"""

if __name__ == "bottleneck":
    raise ImportError(
        "This folder is the source of the package 'softmax_bottleneck', not the PyPI package 'Bottleneck'; "
        "write 'import softmax_bottleneck', or start Python outside the source checkout."
    )

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .errors import BottleneckError

if TYPE_CHECKING:
    from . import corpora, heads, synthetic, theory, training
    from .divergence import PairwiseKLD, pairwise_kld
    from .logprobs import HuggingFaceOptions, argmaxable, compare, dump, extended_logits, gradient, kld, rank
    from .spectrum import RankReport, Spectrum, numerical_rank, singular_values

_MODULES = ("corpora", "heads", "synthetic", "theory", "training")
_HOMES = {
    "HuggingFaceOptions": "logprobs",
    "PairwiseKLD": "divergence",
    "RankReport": "spectrum",
    "Spectrum": "spectrum",
    "argmaxable": "logprobs",
    "compare": "logprobs",
    "dump": "logprobs",
    "extended_logits": "logprobs",
    "gradient": "logprobs",
    "kld": "logprobs",
    "numerical_rank": "spectrum",
    "pairwise_kld": "divergence",
    "rank": "logprobs",
    "singular_values": "spectrum",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES, *_HOMES])


__all__ = [
    "BottleneckError",
    "HuggingFaceOptions",
    "PairwiseKLD",
    "RankReport",
    "Spectrum",
    "__version__",
    "argmaxable",
    "compare",
    "corpora",
    "dump",
    "extended_logits",
    "gradient",
    "heads",
    "kld",
    "numerical_rank",
    "pairwise_kld",
    "rank",
    "singular_values",
    "synthetic",
    "theory",
    "training",
]
