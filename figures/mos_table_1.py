"""Yang et al. 2018, table 1: perplexity on Penn Treebank."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable1(PublishedTable):
    """Test and validation perplexity of single models on Penn Treebank (Yang et al. 2018, table 1; † marks models that
    adapt to the preceding text).
    """

    paper, number = "mos", "1"
    small = ("ptb-fast", "ptb-small", "ptb-small-nt-asgd")
