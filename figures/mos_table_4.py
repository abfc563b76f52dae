"""MoS paper, table 4: dialog on Switchboard."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable4(PublishedTable):
    """Perplexity and smoothed sentence-level BLEU on Switchboard (MoS paper, table 4)."""

    paper, number = "mos", "4"
    kinds_as_rows = True
