"""The settings that published numbers of dynamic evaluation and of the cache were made with."""

from __future__ import annotations

from typing import Any

from ..published import Table, tables
from .cache import Cache
from .dynamic import Dynamic


def _settings(table: Table, column: str, **more: Any) -> Dynamic:
    numbers: dict[str, Any] = table.numbers(column)
    return Dynamic(**numbers, **more)


_KRAUSE, _MOS, _MERITY = (tables(*key)[0] for key in (("krause", "code"), ("mos", "9"), ("merity", "code")))
AWD_LSTM = {"sum": _settings(_KRAUSE, "sum"), "mean": _settings(_KRAUSE, "mean", scaling="mean")}
"""Of AWD-LSTM's Softmax, by `Dynamic.scaling`: those of Krause et al. 2018 for both corpora (``--oldhyper`` in their
code), and the defaults of that code, which are for Penn Treebank."""
MOS = {corpus: _settings(_MOS, corpus) for corpus in _MOS.columns}
"""Of MoS, by corpus: MoS paper, table 9."""
WINDOWS = {corpus: int(_MERITY.cell("window", corpus)) for corpus in _MERITY.columns}
"""Of the cache in AWD-LSTM's code, by corpus."""


def published_dynamic(head: str, corpus: str, *, scaling: str = "sum") -> Dynamic:
    """Return the settings of dynamic evaluation for a head on a corpus: MoS's own, and AWD-LSTM's for all others.

    Args:
        head: its registered name.
        corpus: its name.
        scaling: units of the rates, ``"sum"`` or ``"mean"`` (`Dynamic.scaling`).

    Example:
        >>> published_dynamic("mos", "ptb").decay, published_dynamic("softmax", "ptb").decay
        (0.075, 0.02)
    """
    if head == "mos" and scaling == "sum" and corpus in MOS:
        return MOS[corpus]
    return AWD_LSTM[scaling]


def published_window(corpus: str) -> int:
    """Return the number of contexts in the cache for a corpus of this name."""
    return WINDOWS.get(corpus, Cache.window)
