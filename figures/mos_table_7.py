"""Yang et al. 2018, table 7: rank and perplexity against the number of softmaxes."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable7(PublishedTable):
    """Rank of the log-probability matrix and test perplexity on Penn Treebank by number K of softmaxes in MoS (Yang
    et al. 2018, table 7).
    """

    paper, number = "mos", "7"
    small = ("ptb-small-mos",)
    first = "K"
