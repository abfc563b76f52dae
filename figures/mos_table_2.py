"""Yang et al. 2018, table 2: perplexity on WikiText-2."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable2(PublishedTable):
    """Test and validation perplexity of single models on WikiText-2 (Yang et al. 2018, table 2; † marks models that
    adapt to the preceding text).
    """

    paper, number = "mos", "2"
