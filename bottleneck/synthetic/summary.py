"""Means and standard deviations over seeds, and their table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from ..errors import ConfigurationError
from ..results.tables import terminal
from .cells import CellResult

CELL = ["alpha", "vocab", "dim", "model"]
METRICS = ["mode_match", "kl", "best_kl", "best_mode_match"]
COUNTS = ["seeds", "converged", "diverged", "seconds"]
LARGEST = {"kl": math.inf, "mode_match": 1.0}
"""Largest possible value of each measure."""


def fits(results: Sequence[CellResult]) -> pd.DataFrame:
    """Return one row a result, in their order, with the measures of a fit that diverged as NaN.

    Columns: those of `CELL`, ``seed``, ``contexts``, ``mode_match``, ``kl``, ``best_kl`` and ``best_mode_match`` (see
    `best`), ``largest_gap``, ``converged``, ``diverged`` and ``seconds``.

    Raises:
        ConfigurationError: for two results of one model, size and seed, or different numbers of contexts for one model
            and size.
    """
    columns = [*CELL, "seed", "contexts", "mode_match", "kl", "converged", "diverged", "seconds"]
    data = pd.DataFrame([[result[column] for column in columns] for result in results], columns=columns)
    for metric in ("kl", "mode_match"):
        data[f"best_{metric}"] = [best(result, metric) for result in results]
    data["largest_gap"] = [result["reachable"] and result["reachable"]["largest_gap"] for result in results]
    data = data.astype(dict.fromkeys([*METRICS, "largest_gap"], float))
    for place, group in data.groupby(CELL, sort=False):
        _refuse_mixed(dict(zip(CELL, place, strict=True)), group)
    return data


def summarize(results: Sequence[CellResult]) -> pd.DataFrame:
    """Return one row for each model and size; models are in the order of the results.

    Columns: ``alpha``, ``vocab``, ``dim``, ``model``; mean and sample standard deviation (``…_std``, NaN for one seed)
    over the seeds that did not diverge of ``mode_match``, ``kl``, ``best_kl`` and ``best_mode_match``; ``largest_gap``,
    the largest error of any least KL divergence, in nats; the numbers of ``seeds``, ``converged`` and ``diverged``
    fits; their total ``seconds``.

    Raises:
        ConfigurationError: as for `fits`.
    """
    groups = fits(results).assign(seeds=1).groupby(CELL, sort=False)
    means = groups[METRICS].mean().join(groups[METRICS].std().add_suffix("_std"))
    summary = means.join(groups["largest_gap"].max()).join(groups[COUNTS].sum()).reset_index()
    return summary.sort_values(CELL[:3], kind="stable", ignore_index=True)


def _refuse_mixed(cell: dict[str, Any], fits: pd.DataFrame) -> None:
    what = "of {model} with alpha {alpha:g}, M = {vocab:,} and D = {dim}".format(**cell)
    if len(repeated := fits["seed"][fits["seed"].duplicated()]):
        raise ConfigurationError(f"two results {what} have the seed {repeated.iloc[0]}")
    if len(numbers := sorted(fits["contexts"].unique())) > 1:
        raise ConfigurationError(
            f"the results {what} have {' and '.join(map(str, numbers))} contexts: give results with one number only"
        )


def best(result: CellResult, metric: str) -> float | None:
    """Estimate a measure at the context vectors of least KL divergence for the fitted embeddings.

    Those vectors are known for some contexts (`reachable`). The estimate is the fitted measure of all contexts plus the
    change that the vectors make on those contexts, clipped to the measure's range.

    Args:
        result: result of one cell.
        metric: ``"kl"`` or ``"mode_match"``.

    Returns:
        The estimate; ``None`` for a model that is not log-linear.
    """
    reachable = result["reachable"]
    if reachable is None:
        return None
    corrected: float = result[metric] + reachable[metric] - reachable[f"fitted_{metric}"]
    return min(max(0.0, corrected), LARGEST[metric])


def table(results: Sequence[CellResult]) -> str:
    """Return the summary as text, at most 80 columns wide, with a line for each model and size."""
    summary = summarize(results)
    shown = pd.DataFrame(
        {
            "cell": [
                f"{model}, α {alpha:g}, M {vocab:,}, D {dim}"
                for model, alpha, vocab, dim in zip(
                    summary["model"], summary["alpha"], summary["vocab"], summary["dim"], strict=True
                )
            ],
            "mode match %": _with_spread(100 * summary["mode_match"], 100 * summary["mode_match_std"], "{:.1f}".format),
            "KL": _with_spread(summary["kl"], summary["kl_std"], _nats),
            "best KL for W": summary["best_kl"].map(lambda value: "" if pd.isna(value) else _nats(value)),
            "duality gap": summary["largest_gap"].map(lambda value: "" if pd.isna(value) else f"{value:.0e}"),
            "converged": [
                f"{c}/{s}" + (f", {d} diverged" if d else "")
                for c, s, d in zip(summary["converged"], summary["seeds"], summary["diverged"], strict=True)
            ],
            "seconds": summary["seconds"].map("{:.0f}".format),
        }
    )
    return terminal([*shown], shown.astype(str).to_numpy().tolist())


def _nats(value: float) -> str:
    return f"{value:.3f}" if value >= 0.1 or value == 0 else f"{value:.3g}"


def _with_spread(mean: pd.Series[float], spread: pd.Series[float], text: Callable[[float], str]) -> list[str]:
    return [
        "diverged" if pd.isna(m) else text(m) + ("" if pd.isna(s) else f" ± {text(s)}")
        for m, s in zip(mean, spread, strict=True)
    ]
