"""Yang et al. 2018, table 6: ranks on Penn Treebank."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable6(PublishedTable):
    """Rank of the log-probability matrix on Penn Treebank, M = 10,000 (Yang et al. 2018, table 6). An indeterminate
    rank follows its interval for tolerances ten times larger and smaller.
    """

    paper, number = "mos", "6"
    small = ("ptb-fast", "ptb-small", "ptb-small-nt-asgd")
