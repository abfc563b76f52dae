"""The settings that published numbers of dynamic evaluation and of the cache were made with."""

from __future__ import annotations

from .cache import Cache
from .dynamic import Dynamic

AWD_LSTM = {
    "sum": Dynamic(learning_rate=0.002, decay=0.02, epsilon=0.001),
    "mean": Dynamic(learning_rate=5e-5, decay=0.002, epsilon=2e-5, scaling="mean"),
}
"""Of AWD-LSTM's Softmax, by `Dynamic.scaling`: those of Krause et al. 2018 for both corpora (``--oldhyper`` in their
code), and the defaults of that code, which are for Penn Treebank."""
MOS = {"ptb": Dynamic(), "wikitext-2": Dynamic(learning_rate=0.002, decay=0.02, epsilon=0.002)}
"""Of MoS, by corpus: MoS paper, table 9."""
WINDOWS = {"wikitext-2": 3785}
"""Of the cache in AWD-LSTM's code, where it is not 500."""


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
