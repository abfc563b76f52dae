"""What each output layer of one small transformer gains over the tied Softmax, as a figure."""

from __future__ import annotations

from typing import final

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import HEADS, head_of

from .base import Figure
from .results import Results
from .transformer_study import LABELS, NEEDS, STEPS, TIME, runs

REFERENCE = "softmax"


@final
class TransformerStudyFigure(Figure):
    """Bits per byte of the first 50,000 bytes of the test text, less those of the tied Softmax with the same seed: left
    of the line a head is better. Filled after equal steps, hollow after equal processor time. Means of the seeds, bars
    of one standard deviation. Transformers of six layers on WikiText-2.
    """

    panel = "panel"
    needs = NEEDS
    height = 0.75

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``panel``, ``head``, ``regime``, ``seed`` and ``difference``."""
        data = runs(results)
        if not len(data):
            return data
        softmax = data[data["head"] == REFERENCE].set_index(["panel", "seed"])["bits_per_byte"]
        pairs = pd.MultiIndex.from_frame(data[["panel", "seed"]])
        data["difference"] = data["bits_per_byte"] - softmax.reindex(pairs).to_numpy()
        shown = data[data["head"] != REFERENCE].dropna(subset=["difference"])
        return shown[["panel", "head", "regime", "seed", "difference"]]

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one vocabulary and width, one line of points a head."""
        heads = [head for head in LABELS if head != REFERENCE][::-1]
        ax.axvline(0, color="0.6", linewidth=0.8, zorder=1)
        for (head, regime), rows in data.groupby(["head", "regime"]):
            look, filled = HEADS[head_of(str(head)) or ""], regime == STEPS
            place = heads.index(str(head)) + (0.15 if filled else -0.15)
            spread = rows["difference"].std() if len(rows) > 1 else None
            ax.errorbar(
                rows["difference"].mean(), place, xerr=spread, fmt=look.marker, color=look.color, capsize=2,
                markerfacecolor=look.color if filled else "white", zorder=3,
            )  # fmt: skip
        for regime, face in ((STEPS, "0.3"), (TIME, "white")):
            label = "equal steps" if regime == STEPS else "equal time"
            ax.plot([], [], "o", color="0.3", markerfacecolor=face, label=label)
        ax.set_yticks(range(len(heads)), [LABELS[head] for head in heads])
        ax.set_ylim(-0.6, len(heads) - 0.4)
        ax.set_xlabel("bits per byte − tied Softmax")
        ax.set_ylabel("output layer")
