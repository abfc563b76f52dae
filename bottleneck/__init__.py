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

from .core.version import __version__
from .errors import BottleneckError

if TYPE_CHECKING:
    from . import (
        corpora,
        evaluation,
        heads,
        integrations,
        measure,
        sources,
        spectrum,
        synthetic,
        theory,
        training,
    )
    from . import language_models as models
    from .core.options import Opening
    from .evaluation import Perplexity, perplexity
    from .evaluation import perplexity as eval  # noqa: A004 (sb.eval, as the command)
    from .language_models import checkpoint
    from .measure import (
        RankReport,
        RankReports,
        argmaxable,
        checkpoints,
        compare,
        gradient,
        head,
        head_statistics,
        identify,
        kld,
        need,
        rank,
        singular_values,
    )
    from .measure import pairwise_kld as divergence
    from .measure.divergence_report import PairwiseKLD
    from .measure.dumping import dump
    from .measure.loading import load
    from .measure.pairwise_kld import pairwise_kld
    from .results import Result, frame, table
    from .sources import Source, extended_logits
    from .sources import open_source as open  # noqa: A004 (sb.open, in its own name space)
    from .spectrum import Spectrum, numerical_rank

_HOMES = {
    name: home
    for home, names in {
        "core.options": "Opening",
        "evaluation": "Perplexity eval perplexity",
        "measure": "RankReport RankReports argmaxable checkpoints compare gradient head head_statistics "
        "identify kld need rank singular_values",
        "measure.divergence_report": "PairwiseKLD",
        "measure.dumping": "dump",
        "measure.loading": "load",
        "measure.pairwise_kld": "pairwise_kld",
        "results": "Result frame table",
        "sources": "Source extended_logits open",
        "spectrum": "Spectrum numerical_rank",
    }.items()
    for name in names.split()
}
"""Modules of the public names."""
_NAMED = {"eval": "perplexity", "open": "open_source"}
"""Names of Python's built-in functions, which are those of commands, and what they stand for."""
_MODULES = {
    "checkpoint": "language_models.checkpoint",
    "divergence": "measure.pairwise_kld",
    "models": "language_models",
}
"""Public modules that lie deeper than their names."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), _NAMED.get(name, name))
    if name in __all__:
        return import_module(f".{_MODULES.get(name, name)}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "BottleneckError", "Opening", "PairwiseKLD", "Perplexity", "RankReport", "RankReports",
    "Result", "Source", "Spectrum", "__version__", "argmaxable", "checkpoint", "checkpoints", "compare", "corpora",
    "divergence", "dump", "eval", "evaluation", "extended_logits", "frame", "gradient", "head", "head_statistics",
    "heads", "identify", "integrations", "kld", "load", "measure", "models", "need", "numerical_rank", "open",
    "pairwise_kld", "perplexity", "rank", "singular_values", "sources", "spectrum", "synthetic", "table", "theory",
    "training",
]  # fmt: skip
