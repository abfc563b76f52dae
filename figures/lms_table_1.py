"""Ganea et al. 2019, table 1: PLIF against Softmax and MoS."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class LMSTable1(PublishedTable):
    """Perplexity and seconds an epoch of single models, not finetuned, on Penn Treebank (PTB) and WikiText-2 (WT2);
    published seconds are of one Tesla P100 (Ganea et al. 2019, table 1).
    """

    paper, number = "lms", "1"
    kinds_as_rows = True
