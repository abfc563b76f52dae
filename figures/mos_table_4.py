"""Yang et al. 2018, table 4: dialog on Switchboard."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable4(PublishedTable):
    """Perplexity and smoothed sentence-level BLEU on Switchboard (Yang et al. 2018, table 4): precision is the mean and
    recall the maximum over five responses. Measured with one reference a context, so that recall is never below
    precision, on another preparation of the text than the published numbers (docs/switchboard.md): the order of the
    output layers can be compared, the numbers cannot.
    """

    paper, number = "mos", "4"
    kinds_as_rows = True
    small = ("switchboard-small",)
    needs = "bottleneck eval RUN --bleu --json FILE, with RUN of a preset of switchboard"
