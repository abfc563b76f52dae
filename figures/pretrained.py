"""One pretrained model beside random weights of its shape, and beside a mixture on its hidden states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
KINDS = ("rank", "evaluation", "divergence", "gradient", "argmaxable")
NEEDS = "'bottleneck rank smollm2 --json FILE' and the other commands of docs/pretrained.md"


@table("smollm2", needs=NEEDS, first="measured")
def smollm2(results: SavedResults) -> Iterator[dict[str, Any]]:
    """SmolLM2-135M-Instruct (d = 576, M = 49,152) on 8,192 contexts of two texts, and a model of its shape with random
    weights. The hidden size is estimated from 1,024 rows of log-probabilities alone; the exponent is that of the
    extended logit matrix of 100 histories and 20 futures, with the interval of its regression line.
    """
    for column, key in KEYS.items():
        contents = {kind: saved.content for kind in KINDS for saved in results.of(kind, key)}
        of_outputs = [saved.content for saved in results.of("rank", f"{key}-outputs")]
        extended = [saved.content for saved in results.of("rank", f"{key}-extended")]
        for row, text in _numbers(contents, of_outputs, extended):
            yield cell(row, column, "", text, source="measured")


def _numbers(contents: Mapping[str, Any], of_outputs: list[Any], extended: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text of each measured number."""
    if "rank" in contents:
        report = contents["rank"]
        for which, row in (("rank", "rank"), ("rank_centered", "row-centred rank")):
            bound = report["bound"]["raw" if which == "rank" else "centered"]
            yield row, f"{interval_text(report[which]['low'], report[which]['high'])} of at most {bound:,}"
        yield "rank by NumPy's rule", f"{report['rank_by_rule']['numpy']:,}"
        for share, rank in report["effective_rank"].items():
            yield f"ε-effective rank, ε = {share}", f"{rank:,}"
        yield "entropy rank of the singular values", f"{report['entropy_rank']:.0f}"
        yield (
            "entropy rank of W and of the hidden states",
            " and ".join(f"{report['head_analysis'][each]['entropy_rank']:.0f}" for each in ("weight", "hidden")),
        )
    for report in of_outputs:
        yield "hidden size from its outputs", f"{report['hidden_size_estimate']['value']:,}"
    for report in extended:
        law = report["power_law"]
        yield "exponent of extended logits", f"{law['exponent']:.2f} ({law['low']:.2f} to {law['high']:.2f})"
    if "divergence" in contents:
        yield "pairwise KL, nats", f"{contents['divergence']['kld']:.3f}"
    if "evaluation" in contents:
        yield "perplexity", f"{contents['evaluation']['perplexity']:,.2f}"
    if "gradient" in contents:
        yield "share of the gradient's norm kept", f"{contents['gradient']['kept']:.3f}"
    if "argmaxable" in contents:
        report = contents["argmaxable"]
        yield "tokens: never the argmax, undecided", f"{len(report['unargmaxable']):,}, {len(report['unknown']):,}"


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
