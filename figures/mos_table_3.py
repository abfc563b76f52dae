"""Yang et al. 2018, table 3: perplexity on the 1B Word data set."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable3(PublishedTable):
    """Perplexity on the 1B Word data set (Yang et al. 2018, table 3)."""

    paper, number = "mos", "3"
