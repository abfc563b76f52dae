"""Rank and perplexity over training, as a table."""

from __future__ import annotations

from typing import Any, final

import pandas as pd

from softmax_bottleneck.demo_table import rank_text
from softmax_bottleneck.plotting import HEADS, head_of

from .base import Table
from .published_table import COLUMNS, cell
from .results import CHECKPOINT, Results, Saved
from .training_course import NEEDS

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
"""Digits to exponents: the ε of an effective rank is a power of ten, ``1e-3``."""


@final
class TrainingCourseTable(Table):
    """Validation perplexity, ranks and ε-effective ranks of the log-probability matrix after each epoch whose
    checkpoint was measured; an indeterminate rank follows its interval for tolerances ten times larger and smaller.
    """

    needs = NEEDS
    first = "model"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return one row for each number; see `Table`."""
        cells = [one for saved in results.of(CHECKPOINT) for one in _cells(saved, _perplexity(results, saved))]
        return pd.DataFrame(cells, columns=COLUMNS)


def _perplexity(results: Results, saved: Saved) -> float | None:
    """Return the last validation perplexity of the checkpoint's epoch."""
    reports = [report for report in results.of("report", saved.key) if report.seed == saved.seed]
    rows = [row for report in reports for row in report.content.get("history", [])]
    return next((row["valid_perplexity"] for row in reversed(rows) if row["epoch"] == saved.epoch), None)


def _cells(saved: Saved, perplexity: float | None) -> list[dict[str, Any]]:
    family, _, name = saved.key.rpartition("/")
    head = head_of(name)
    row = f"{HEADS[head].label if head else name} ({family}), epoch {saved.epoch}"
    content = saved.content
    ranks = {"rank": content["rank"], "row-centred rank": content["rank_centered"]}
    texts: dict[str, tuple[str, float | None]] = {
        "contexts": (f"{content['contexts']:,}", content["contexts"]),
        "validation perplexity": ("" if perplexity is None else f"{perplexity:.2f}", perplexity),
        **{column: (rank_text([rank]), rank["value"]) for column, rank in ranks.items()},
        **{
            f"10{eps.removeprefix('1e').translate(RAISED)}-effective rank": (f"{rank:,}", rank)
            for eps, rank in content["effective_rank"].items()
        },
    }
    return [cell(row, column, "", text, value=value, source=saved.key) for column, (text, value) in texts.items()]
