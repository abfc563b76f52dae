"""Yang et al. 2018, table 5: ablation."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable5(PublishedTable):
    """Perplexity without finetuning or dynamic evaluation on Penn Treebank (PTB) and WikiText-2 (WT2): ablation (Yang
    et al. 2018, table 5).
    """

    paper, number = "mos", "5"
    kinds_as_rows = True
