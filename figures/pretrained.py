"""One pretrained model beside random weights of its shape, and beside a mixture on its hidden states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.results.plotting.spectra import NOTE, draw_scree
from softmax_bottleneck.results.tables import interval_text
from softmax_bottleneck.spectrum import EPS, Limits

from .base import cell, figure, stacked, table
from .results import SavedResults

KEYS = {
    "SmolLM2, WikiText-2": "smollm2/wikitext-2",
    "SmolLM2, Python's documentation": "smollm2/python-docs",
    "random weights, WikiText-2": "smollm2/random",
}
"""Model and text by column, and the name of their results before the first dot."""
CURVES = {
    "softmax": "smollm2/valid",
    "mos": "frozen-body/spectra/mos-4",
    "sigsoftmax": "frozen-body/spectra/sigsoftmax",
}
"""Spectra of the figure by head."""
ROWS = {
    "rank": "{0[rank]} of at most {0[bound.raw]:,.0f}",
    "row-centred rank": "{0[rank_centered]} of at most {0[bound.centered]:,.0f}",
    "rank by NumPy's rule": "{0[rank_by_rule.numpy]:,.0f}",
    **{f"ε-effective rank, ε = {share}": f"{{0[effective_rank.{share}]:,.0f}}" for share in ("1e-3", "1e-4", "1e-5")},
    "entropy rank of the singular values": "{0[entropy_rank]:.0f}",
    "entropy rank of W and of the hidden states": "{0[head_analysis.weight.entropy_rank]:.0f} and "
    "{0[head_analysis.hidden.entropy_rank]:.0f}",
    "hidden size from its outputs": "{0[-outputs hidden_size_estimate]:,.0f}",
    "exponent of extended logits": "{0[-extended power_law.exponent]:.2f} ({0[-extended power_law.low]:.2f} to "
    "{0[-extended power_law.high]:.2f})",
    "pairwise KL, nats": "{0[kld]:.3f}",
    "perplexity": "{0[perplexity]:,.2f}",
    "share of the gradient's norm kept": "{0[kept]:.3f}",
    "tokens: never the argmax, undecided": "{0[unargmaxable]:,.0f}, {0[unknown]:,.0f}",
}
"""Rows of the table, each a text with numbers by their metric."""
RANKS = ("rank", "rank_centered")
NEEDS = "'bottleneck rank smollm2 --json FILE' and the other commands of docs/pretrained.md"


@table("smollm2", needs=NEEDS, first="measured")
def smollm2(results: SavedResults) -> Iterator[dict[str, Any]]:
    """SmolLM2-135M-Instruct (d = 576, M = 49,152) on 8,192 contexts of two texts, and a model of its shape with random
    weights. The hidden size is estimated from 1,024 rows of log-probabilities alone; the exponent is that of the
    extended logit matrix of 100 histories and 20 futures, with the interval of its regression line.
    """
    for column, key in KEYS.items():
        found = results.frame[results.frame["source"].str.startswith(key)]
        values: dict[str, Any] = {}
        for row in found.to_dict("records"):
            name = f"{row['source'].removeprefix(key)} {row['metric']}".strip()
            values[name] = interval_text(row["low"], row["high"]) if row["metric"] in RANKS else row["value"]
        for label, text in ROWS.items():
            with suppress(KeyError):  # a number that was not measured
                yield cell(label, column, "", text.format(values), source="measured")


def curves(results: SavedResults) -> pd.DataFrame:
    """Return the raw rows of `Spectrum.curves`, with NumPy's tolerance over σ_1 and the rank that it counts."""
    frames = []
    for model, key in CURVES.items():
        for saved in results.of("rank", key):
            spectrum, report = results.spectra[key], saved.content
            limits = Limits(report["rank"]["tolerance"], None, report["bound"]["raw"], None)
            strict = max(spectrum.shape) * EPS["float32"]
            rows = spectrum.curves(model, limits).query("part == 'raw'")
            frames.append(rows.assign(numpy=strict, counted=(rows["normalized"] > strict).sum()))
    return stacked(frames)


@figure("smollm2-and-mos", data=curves, needs=NEEDS)
def smollm2_and_mos(ax: Axes, data: pd.DataFrame) -> None:
    """Singular values of the log-probabilities of SmolLM2 (Softmax), and of a mixture of four softmaxes (MoS) and a
    Sigsoftmax that were trained on its hidden states: 1,024 contexts of WikiText-2, 49,152 tokens. The dashed line is
    the tolerance that ranks are counted at, with the band that leaves them open; the dotted line is NumPy's.
    """
    draw_scree(ax, data)
    ax.set_xscale("linear")  # a logarithmic index leaves a sliver to what follows the bound
    ax.set_xlim(0, 1.02 * data["index"].max())
    own = data[data["model"] == "softmax"].iloc[0]
    ax.axhline(own["numpy"], color="0.45", linestyle=":", linewidth=0.9, zorder=1)
    ax.plot(own["counted"], own["numpy"], "o", color="0.3", zorder=4)
    ax.annotate(
        f"NumPy's tolerance counts {own['counted']:,}", (own["counted"], own["numpy"]), (4, 3),
        textcoords="offset points", **NOTE,
    )  # fmt: skip
