"""Parthiban et al. 2021, supplement, tables 10 and 11: four heads under NT-ASGD."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class ParthibanNTASGD(PublishedTable):
    """Test perplexity and rank under NT-ASGD on Penn Treebank (PTB) and WikiText-2 (WT2, ranks of the first 33,320
    contexts) (Parthiban et al. 2021, supplement, tables 10 and 11).
    """

    paper, number = "parthiban", "10 and 11"
    kinds_as_rows = True
