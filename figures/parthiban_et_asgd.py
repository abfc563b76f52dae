"""Parthiban et al. 2021: six heads under ET-ASGD."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class ParthibanETASGD(PublishedTable):
    """Test perplexity and rank under ET-ASGD, with averages from epoch 200 on, on Penn Treebank (PTB) and WikiText-2
    (WT2, ranks of the first 33,320 contexts); published seconds an epoch are of one V100 (Parthiban et al. 2021).
    """

    paper, number = "parthiban", "ET-ASGD"
    kinds_as_rows = True
