"""The tables of results of the three papers, each published and measured numbers side by side."""

from __future__ import annotations

from .published_table import PublishedTable

SMALL = ("ptb-fast", "ptb-small", "ptb-small-nt-asgd")
"""Families of small models on Penn Treebank that differ in the output layer."""

MOS_TABLE_1 = PublishedTable(
    "mos",
    "1",
    "Test and validation perplexity of single models on Penn Treebank (Yang et al. 2018, table 1; † marks "
    "models that adapt to the preceding text).",
    small=SMALL,
)
MOS_TABLE_2 = PublishedTable(
    "mos",
    "2",
    "Test and validation perplexity of single models on WikiText-2 (Yang et al. 2018, table 2; † marks "
    "models that adapt to the preceding text).",
    small=("wt2-fast",),
)
MOS_TABLE_3 = PublishedTable("mos", "3", "Perplexity on the 1B Word data set (Yang et al. 2018, table 3).")
MOS_TABLE_4 = PublishedTable(
    "mos",
    "4",
    "Perplexity and smoothed sentence-level BLEU on Switchboard (Yang et al. 2018, table 4): precision is "
    "the mean and recall the maximum over five responses. Measured with one reference a context, so that "
    "recall is never below precision, on another preparation of the text than the published numbers "
    "(docs/switchboard.md): the order of the output layers can be compared, the numbers cannot.",
    kinds_as_rows=True,
    small=("switchboard-small",),
    needs="bottleneck eval RUN --bleu --json FILE, with RUN of a preset of switchboard",
)
MOS_TABLE_5 = PublishedTable(
    "mos",
    "5",
    "Perplexity without finetuning or dynamic evaluation on Penn Treebank (PTB) and WikiText-2 (WT2): "
    "ablation (Yang et al. 2018, table 5).",
    kinds_as_rows=True,
)
MOS_TABLE_6 = PublishedTable(
    "mos",
    "6",
    "Rank of the log-probability matrix on Penn Treebank, M = 10,000 (Yang et al. 2018, table 6). An "
    "indeterminate rank follows its interval for tolerances ten times larger and smaller.",
    small=SMALL,
)
MOS_TABLE_7 = PublishedTable(
    "mos",
    "7",
    "Rank of the log-probability matrix and test perplexity on Penn Treebank by number K of softmaxes in MoS"
    " (Yang et al. 2018, table 7).",
    small=("ptb-small-mos",),
    first="K",
)
MOS_TABLE_11 = PublishedTable(
    "mos", "11", "Expected pairwise KL divergence on Penn Treebank, nats (Yang et al. 2018, table 11).", small=SMALL
)
MOS_TABLE_12 = PublishedTable("mos", "12", "Bits per character on text8 (Yang et al. 2018, table 12).")
LMS_TABLE_1 = PublishedTable(
    "lms",
    "1",
    "Perplexity and seconds an epoch of single models, not finetuned, on Penn Treebank (PTB) and WikiText-2 "
    "(WT2); published seconds are of one Tesla P100 (Ganea et al. 2019, table 1).",
    kinds_as_rows=True,
)
PARTHIBAN_NT_ASGD = PublishedTable(
    "parthiban",
    "10 and 11",
    "Test perplexity and rank under NT-ASGD on Penn Treebank (PTB) and WikiText-2 (WT2, ranks of the first "
    "33,320 contexts) (Parthiban et al. 2021, supplement, tables 10 and 11).",
    kinds_as_rows=True,
)
PARTHIBAN_ET_ASGD = PublishedTable(
    "parthiban",
    "ET-ASGD",
    "Test perplexity and rank under ET-ASGD, with averages from epoch 200 on, on Penn Treebank (PTB) and "
    "WikiText-2 (WT2, ranks of the first 33,320 contexts); published seconds an epoch are of one V100 "
    "(Parthiban et al. 2021).",
    kinds_as_rows=True,
)
