"""MoS paper, table 1: perplexity on Penn Treebank."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable1(PublishedTable):
    """Test and validation perplexity of single models on Penn Treebank (MoS paper, table 1; † marks scores that learn
    from the text before).
    """

    paper, number = "mos", "1"
    small = ("ptb-small", "ptb-small-nt-asgd")
