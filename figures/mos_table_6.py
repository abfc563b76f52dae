"""MoS paper, table 6: ranks on Penn Treebank."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable6(PublishedTable):
    """Rank of the log-probability matrix on Penn Treebank, M = 10,000 (MoS paper, table 6). Of a rank that is not
    determinate, the interval for tolerances ten times larger and smaller comes first.
    """

    paper, number = "mos", "6"
    small = ("ptb-small", "ptb-small-nt-asgd")
