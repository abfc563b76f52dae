"""The tables of results of the three papers, each published and measured numbers side by side."""

from __future__ import annotations

from typing import final

from .published_table import PublishedTable


@final
class MoSTable1(PublishedTable):
    """Test and validation perplexity of single models on Penn Treebank (Yang et al. 2018, table 1; † marks models that
    adapt to the preceding text).
    """

    paper, number = "mos", "1"
    small = ("ptb-fast", "ptb-small", "ptb-small-nt-asgd")


@final
class MoSTable2(PublishedTable):
    """Test and validation perplexity of single models on WikiText-2 (Yang et al. 2018, table 2; † marks models that
    adapt to the preceding text).
    """

    paper, number = "mos", "2"
    small = ("wt2-fast",)


@final
class MoSTable3(PublishedTable):
    """Perplexity on the 1B Word data set (Yang et al. 2018, table 3)."""

    paper, number = "mos", "3"


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


@final
class MoSTable5(PublishedTable):
    """Perplexity without finetuning or dynamic evaluation on Penn Treebank (PTB) and WikiText-2 (WT2): ablation (Yang
    et al. 2018, table 5).
    """

    paper, number = "mos", "5"
    kinds_as_rows = True


@final
class MoSTable6(PublishedTable):
    """Rank of the log-probability matrix on Penn Treebank, M = 10,000 (Yang et al. 2018, table 6). An indeterminate
    rank follows its interval for tolerances ten times larger and smaller.
    """

    paper, number = "mos", "6"
    small = ("ptb-fast", "ptb-small", "ptb-small-nt-asgd")


@final
class MoSTable7(PublishedTable):
    """Rank of the log-probability matrix and test perplexity on Penn Treebank by number K of softmaxes in MoS (Yang
    et al. 2018, table 7).
    """

    paper, number = "mos", "7"
    small = ("ptb-small-mos",)
    first = "K"


@final
class MoSTable11(PublishedTable):
    """Expected pairwise KL divergence on Penn Treebank, nats (Yang et al. 2018, table 11)."""

    paper, number = "mos", "11"
    small = ("ptb-fast", "ptb-small", "ptb-small-nt-asgd")


@final
class MoSTable12(PublishedTable):
    """Bits per character on text8 (Yang et al. 2018, table 12)."""

    paper, number = "mos", "12"


@final
class LMSTable1(PublishedTable):
    """Perplexity and seconds an epoch of single models, not finetuned, on Penn Treebank (PTB) and WikiText-2 (WT2);
    published seconds are of one Tesla P100 (Ganea et al. 2019, table 1).
    """

    paper, number = "lms", "1"
    kinds_as_rows = True


@final
class ParthibanNTASGD(PublishedTable):
    """Test perplexity and rank under NT-ASGD on Penn Treebank (PTB) and WikiText-2 (WT2, ranks of the first 33,320
    contexts) (Parthiban et al. 2021, supplement, tables 10 and 11).
    """

    paper, number = "parthiban", "10 and 11"
    kinds_as_rows = True


@final
class ParthibanETASGD(PublishedTable):
    """Test perplexity and rank under ET-ASGD, with averages from epoch 200 on, on Penn Treebank (PTB) and WikiText-2
    (WT2, ranks of the first 33,320 contexts); published seconds an epoch are of one V100 (Parthiban et al. 2021).
    """

    paper, number = "parthiban", "ET-ASGD"
    kinds_as_rows = True
