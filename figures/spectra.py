"""Figures of saved spectra and of ranks that are counted from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.results.plotting import HEADS, head_of
from softmax_bottleneck.results.plotting.spectra import ZERO, draw_cdf, draw_scree, mark_unresolved, spaced
from softmax_bottleneck.spectrum import Limits, Spectrum
from softmax_bottleneck.spectrum.effective_ranks import effective_rank
from softmax_bottleneck.spectrum.rules import MARGIN

from .base import by_model, family_panels, figure, stacked
from .results import SPECTRUM, SavedResults

NEEDS = f"spectra with their reports, of the demo or of 'bottleneck demo --family NAME' (or {SPECTRUM}, rank --json)"
ELSEWHERE = ("smollm2", "frozen-body/spectra")
"""Families that pretrained.py draws."""
FACTORS = np.geomspace(1e-3, 1e3, 241)
EPSILONS = np.geomspace(1e-10, 1e-1, 91)
LOOKS = {"raw": ("0.35", "-"), "row-centred": ("#0173b2", "--")}


class Measured(NamedTuple):
    """A spectrum with the tolerances and bounds of its report."""

    family: str
    model: str
    spectrum: Spectrum
    limits: Limits

    def curves(self) -> pd.DataFrame:
        """Return the rows of `Spectrum.curves`, with the ``family``."""
        return self.spectrum.curves(self.model, self.limits).assign(family=self.family)

    def frame(self, **columns: Any) -> pd.DataFrame:
        """Return columns after those of family and model."""
        return pd.DataFrame({"family": self.family, "model": self.model, **columns})


def measured(results: SavedResults) -> Iterator[Measured]:
    """Yield every saved spectrum that has a report beside it, in the order of the reports."""
    for saved in (*results.of("demo"), *results.of("rank")):
        if saved.seed == 0 and saved.epoch is None and saved.key in results.spectra and saved.family not in ELSEWHERE:
            report = saved.report
            tolerances = (report[which]["tolerance"] for which in ("rank", "rank_centered"))
            bounds = (report.get("bound", {}).get(which) for which in ("raw", "centered"))
            yield Measured(saved.family, saved.model, results.spectra[saved.key], Limits(*tolerances, *bounds))


def cdf_data(results: SavedResults) -> pd.DataFrame:
    """Return ``family``, ``model`` and columns of `Spectrum.curves`, which see."""

    def curves(key: str, spectrum: Spectrum) -> pd.DataFrame:
        family, _, model = key.rpartition("/")
        rows = spectrum.curves(model).assign(family=family).query("part == 'raw'")
        return rows[["family", "model", "index", "normalized", "percent", "resolved", "size"]]

    shown = {key: each for key, each in results.spectra.items() if key.rpartition("/")[0] not in ELSEWHERE}
    return stacked(curves(key, spectrum) for key, spectrum in shown.items())


@figure("mos-figure-1", data=cdf_data, **family_panels(),
        needs=f"spectra of the demo or of 'bottleneck demo --family NAME', or {SPECTRUM}")  # fmt: skip
def cdf(ax: Axes, data: pd.DataFrame) -> None:
    """Percentage of the log-probability matrix's singular values below a share of the largest (Yang et al. 2018, figure
    1; here the axis spreads the percentages near 100, where a Softmax lies). Where a curve starts with a hollow circle,
    its method does not resolve smaller values.
    """
    draw_cdf(ax, data)


def scree_data(results: SavedResults) -> pd.DataFrame:
    """Return the raw rows of `Spectrum.curves`, with the ``family``."""
    return stacked(each.curves().query("part == 'raw'") for each in measured(results))


@figure("spectra", data=scree_data, needs=NEEDS, **family_panels())
def scree(ax: Axes, data: pd.DataFrame) -> None:
    """Singular values of the log-probability matrix over the largest. The dashed line is the tolerance (Press) that the
    rank is counted at, and the grey band ten times more and less: a rank is determinate if as many singular values lie
    above the band as above its lower edge. A vertical line marks the bound of an output layer's rank. Where a curve
    ends with a hollow circle, its method does not resolve further values.
    """
    draw_scree(ax, data)


def ranks_by_tolerance(results: SavedResults) -> pd.DataFrame:
    """Return ``family``, ``model``, ``factor`` (of Press's tolerance) and ``rank`` where it is resolved.

    ``unresolved`` says whether the method does not reach the smallest factors.
    """

    def ranks(each: Measured) -> pd.DataFrame:
        limits, values, error = FACTORS * (each.limits.tolerance or 0.0), each.spectrum.values, each.spectrum.error
        counts = np.searchsorted(-values, -limits)  # values above a limit
        resolved = (limits >= error) | (values[-1] > error)
        return each.frame(factor=FACTORS[resolved], rank=counts[resolved], unresolved=not resolved.all())

    return stacked(map(ranks, measured(results)))


@figure("rank-by-tolerance", data=ranks_by_tolerance, needs=NEEDS, **family_panels())
def rank_by_tolerance(ax: Axes, data: pd.DataFrame) -> None:
    """Number of singular values above a tolerance, against its ratio to Press's tolerance. In the grey band, a factor
    of ten on either side, a determinate rank is constant. Where a curve starts with a hollow circle, its method
    does not resolve smaller tolerances.
    """
    ax.axvspan(1 / MARGIN, MARGIN, color="0.9", zorder=0, linewidth=0)
    ax.axvline(1, color="0.45", linestyle="--", linewidth=0.9, zorder=1)
    for look, rows in by_model(data):
        ax.plot(rows["factor"], rows["rank"], drawstyle="steps-post", **look.line())
        if rows["unresolved"].any():
            mark_unresolved(ax, rows.head(1), "factor", "rank", look)
    ax.set(xscale="log", yscale="log", xlabel="tolerance / Press's", ylabel="rank")


def effective_ranks_data(results: SavedResults) -> pd.DataFrame:
    """Return ``family``, ``model``, ``epsilon`` and ``rank`` where it is resolved."""

    def ranks(each: Measured) -> pd.DataFrame:
        values, error = each.spectrum.values, each.spectrum.error
        hidden = np.count_nonzero(values <= error) * error**2 / float((values**2).sum())
        shares = EPSILONS[hidden < EPSILONS]
        counts = [effective_rank(values, epsilon=e, residual=each.spectrum.residual) for e in shares.tolist()]
        return each.frame(epsilon=shares, rank=pd.array(counts, dtype="Int64"))

    return stacked(map(ranks, measured(results)))


@figure("effective-ranks", data=effective_ranks_data, needs=NEEDS, **family_panels())
def effective_ranks(ax: Axes, data: pd.DataFrame) -> None:
    """ε-effective rank: the number of singular values that hold all but a share ε of the energy Σσ² (Parthiban et al.
    2021). A curve ends where the singular values that the method does not resolve could hold that share.
    """
    for look, rows in by_model(data):
        resolved = rows[rows["rank"].notna()]
        ax.plot(resolved["epsilon"], resolved["rank"].astype(float), **look.line())
    ax.set(xscale="log", yscale="log", xlabel="share ε of energy left out", ylabel="ε-effective rank")


def row_centring_data(results: SavedResults) -> pd.DataFrame:
    """Return the resolved rows of `Spectrum.curves` of one model: of the first family, that with most of them.

    ``tolerance`` is not over σ_1.
    """

    def curves(each: Measured) -> pd.DataFrame:
        head, rows = head_of(each.model), each.curves()
        rows["tolerance"] *= rows.groupby("part")["sigma"].transform("max")
        return rows[rows["resolved"]].assign(model=HEADS[head].label if head == each.model else each.model)

    spectra = [*measured(results)]
    return max((curves(each) for each in spectra if each.family == spectra[0].family), key=len, default=stacked([]))


@figure("row-centring", data=row_centring_data, needs=NEEDS, heading=lambda data: data["model"].iloc[0])
def row_centring(ax: Axes, data: pd.DataFrame) -> None:
    """Singular values of the log-probability matrix, raw and with each row's mean subtracted, which removes the large
    first value in the direction of all ones, and with it the tolerance (dotted lines of the same colour). Values that
    the method does not resolve are not drawn. The model of the first family with the most values, of the demo (text of
    Python's documentation) if it was run.
    """
    for part, (color, dashes) in LOOKS.items():
        rows = data[data["part"] == part]
        tolerance = rows["tolerance"].iloc[0]
        rows = rows[rows["sigma"] > ZERO * tolerance]
        rows = rows.iloc[spaced(len(rows))]
        ax.plot(rows["index"], rows["sigma"], dashes, color=color, label=part)
        ax.axhline(tolerance, color=color, linestyle=":", linewidth=0.9, zorder=1)
        ax.annotate(f"tolerance, {part}", (1, tolerance), (0, 2), textcoords="offset points", color=color)
    ax.set(xscale="log", yscale="log", xlabel="index $i$", ylabel=r"$\sigma_i$")
    ax.set_xlim(0.8, 1.3 * data["size"].iloc[0])
