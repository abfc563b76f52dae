"""Yang et al. 2018, table 12: characters of text8."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable12(PublishedTable):
    """Bits per character on text8 (Yang et al. 2018, table 12)."""

    paper, number = "mos", "12"
