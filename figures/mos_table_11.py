"""Yang et al. 2018, table 11: pairwise KL divergence."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable11(PublishedTable):
    """Expected pairwise KL divergence on Penn Treebank, nats (Yang et al. 2018, table 11)."""

    paper, number = "mos", "11"
    small = ("ptb-fast", "ptb-small", "ptb-small-nt-asgd")
