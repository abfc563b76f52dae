"""The reports of several sources in one object, and what the checkpoints of one training show beside their ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, final

from torch import Tensor

from ..core.progress import Progress
from ..errors import SourceError
from ..language_models import ModelOnText, Source
from ..language_models.checkpoint import CHECKPOINTS
from ..results.base import Results, short_names
from ..results.quantity import DETAIL, NOWHERE, TABLE, Quantity
from ..spectrum import effective_rank, entropy_rank
from ..theory.power_law import power_law
from .directions import ROWS, Directions, directions
from .gradients import gradient
from .report import RankReport, spectra_beside

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ..results.plotting.layout import Panel

STEP = re.compile(r"(?P<run>.*?)(?P<unit>step|checkpoint|epoch)[-_](?P<number>\d+)(/|\.\w+)?")
"""A path or name of a checkpoint."""


@final
class RankReports(Results[RankReport]):
    """The rank reports of several sources: a sequence, also by name, and a table or a figure of all."""

    def save(self, path: str | Path) -> None:
        """Write all reports as JSON, for `load`, and their singular values to the ``.npz`` file of the same name."""
        with spectra_beside(path, self):
            super().save(path)

    def plot(
        self, ax: Axes | str | Path | None = None, *, part: str = "raw", log: bool = True, style: str = "screen"
    ) -> Axes:
        """Draw the singular values of all reports into one panel, or checkpoints of one run against the step.

        Checkpoints have names such as ``step-300`` or ``checkpoint-300`` in one folder, see `checkpoints`.

        Args:
            ax: a file to write, or axes to draw into, of checkpoints the ranks alone; by default those of a new figure.
            part: as for `RankReport.plot`.
            log: as for `RankReport.plot`.
            style: as for `RankReport.plot`.
        """
        from ..results.plotting.layout import show

        return show(self._panels(part, log), ax, style=style)

    def _panels(self, part: str, log: bool) -> list[Panel]:
        import pandas as pd

        from ..results.plotting.layout import Panel
        from ..results.plotting.spectra import spectrum_panels

        if course := steps_of(report.source["path"] for report in self):
            unit, steps = course
            values = pd.DataFrame([_of_course(report) for report in self], index=steps).sort_index()
            names = [column for column in ("perplexity", "gradient kept", "αReQ of H") if column in values]
            draws: list[Callable[..., None]] = [_draw_ranks, *(partial(_draw_value, name=name) for name in names)]
            label = "epoch" if unit == "epoch" else "step"
            return [Panel(partial(draw, data=values, label=label)) for draw in draws]
        names = short_names(report.name for report in self)
        curves = [report.spectrum.curves(name, report.limits) for name, report in zip(names, self, strict=True)]
        return spectrum_panels(pd.concat(curves), part=part, log=log)


def _of_course(report: RankReport) -> dict[str, float | None]:
    """Return the values of one checkpoint that a figure draws."""
    shown: dict[str, float | None] = {each.label: each.value for each in report.more if each.shown & TABLE}
    shown |= {"effective rank": report.effective_rank["1e-3"]}
    for name, rank in (("rank", report.rank), ("row-centred rank", report.rank_centered)):
        shown |= {name: rank.value, f"{name}, low": rank.low, f"{name}, high": rank.high}
    return shown


def _draw_ranks(ax: Axes, data: pd.DataFrame, label: str) -> None:
    """Draw ranks against the step; bars show the interval of a rank."""
    from ..results.plotting.looks import BLACK, BLUE, GREEN, ORANGE, RED, SKY

    for name, color, marker in (
        ("rank", BLACK, "o"), ("row-centred rank", BLUE, "D"), ("effective rank", ORANGE, "s"),
        ("effective rank of H", GREEN, "^"), ("effective rank of W", RED, "v"), ("RankMe of H", SKY, "x"),
    ):  # fmt: skip
        if name in data:
            ax.plot(data.index, data[name].astype(float), color=color, marker=marker, label=name)
        if f"{name}, low" in data:
            ax.vlines(data.index, data[f"{name}, low"], data[f"{name}, high"], color=color, linewidth=0.8)
    ax.set(xlabel=label, ylabel="rank")
    ax.set_ylim(bottom=0)


def _draw_value(ax: Axes, data: pd.DataFrame, label: str, name: str) -> None:
    """Draw one value against the step."""
    ax.plot(data.index, data[name].astype(float), color="black", marker="o")
    ax.set(xlabel=label, ylabel=name)
    ax.update_datalim([(data.index[0], 0.0)])  # so that the margin is a share of the whole height
    ax.autoscale_view()
    ax.set_ylim(bottom=0)


def checkpoints(folder: str | Path) -> list[Path]:
    """Return the checkpoints of a run or of a ``Trainer``'s folder, by their step, for `rank`.

    Args:
        folder: a run that was trained with ``keep_checkpoints``, or a folder with ``checkpoint-100`` and so on.

    Raises:
        SourceError: for a folder without checkpoints.
    """
    places = (Path(folder) / CHECKPOINTS, Path(folder))
    found = [
        (int(match["number"]), path)
        for place in places
        for path in place.glob("*[-_]*")
        if path.is_dir() and (match := STEP.fullmatch(path.name)) and not match["run"]
    ]
    if not found:
        raise SourceError(
            f"{folder} holds no checkpoints: train a run with training.keep_checkpoints=true, or give the folder "
            "in which a Trainer wrote checkpoint-100 and so on"
        )
    return [path for _, path in sorted(found)]


def steps_of(names: Iterable[object]) -> tuple[str, list[int]] | None:
    """Return the unit, such as ``"step"``, and the number of each name, if they are several checkpoints of one run."""
    matches = [STEP.fullmatch(str(name)) for name in names]
    found = [match for match in matches if match]
    if len(found) < max(2, len(matches)) or len({(match["run"], match["unit"]) for match in found}) > 1:
        return None
    return found[0]["unit"], [int(match["number"]) for match in found]


def checkpoint_quantities(report: RankReport, source: Source, progress: Progress) -> list[Quantity]:
    """Return effective ranks of log P, H and W, RankMe and αReQ of H, the gradient kept and the perplexity of a model.

    H are the context vectors of a log-linear head, (T, d), otherwise the inputs of the output layer. Effective ranks
    leave out 10⁻³ of Σσ².

    References:
        Garrido et al. 2023, *RankMe: Assessing the Downstream Performance of Pretrained Self-Supervised Representations
        by Their Rank*. Agrawal et al. 2022, *α-ReQ: Assessing Representation Quality in Self-Supervised Learning by
        Measuring Eigenspectrum Decay*. Both over the pretraining of language models: arXiv 2509.23024.
    """
    from ..evaluation import perplexity  # it loads all of training

    if not isinstance(source, ModelOnText) or source.targets is None:
        return []
    H, W = directions(_contexts(source)), directions(source.head.weight.split(ROWS))
    alpha, last = alpha_req(H)
    fit = "unknown" if alpha is None else f"{alpha:.3f} (i from 1 to {last:,})"
    kept = gradient(source, progress=progress).kept
    shown = DETAIL | TABLE
    return [
        Quantity("effective_rank.1e-3", report.effective_rank["1e-3"], "effective rank", TABLE),
        Quantity(
            "checkpoint.effective_rank_hidden", effective_rank(H.values, epsilon=1e-3), "effective rank of H", shown
        ),
        Quantity(
            "checkpoint.effective_rank_weight", effective_rank(W.values, epsilon=1e-3), "effective rank of W", shown
        ),
        Quantity("checkpoint.rankme", entropy_rank(H.values), "RankMe of H", shown),
        Quantity("checkpoint.alpha_req", alpha, "αReQ of H", TABLE),
        Quantity("", None, "αReQ of H", DETAIL, fit),
        Quantity("checkpoint.alpha_req_last", last, shown=NOWHERE),
        Quantity("checkpoint.gradient_kept", kept, "gradient kept", shown, f"{100 * kept:.2f} %"),
        Quantity("checkpoint.perplexity", perplexity(source, progress=progress).perplexity, "perplexity", shown),
    ]


def _contexts(source: ModelOnText) -> Iterator[Tensor]:
    for hidden in source.hidden(source.ranges(ROWS)):
        factors = source.linear(hidden)
        yield hidden if factors is None else factors.contexts


def alpha_req(hidden: Directions) -> tuple[float | None, int]:
    """Return α of λ_i ∝ i^(−α), and the last i of the least-squares fit of log λ to log i.

    λ are the eigenvalues of the covariance of H. The fit is over 1 ≤ i ≤ n/2 (and over at least three values) with n
    the rank of H less its mean; α is ``None`` for a rank below 3.
    """
    rank = hidden.rank_centered.value
    last = max(3, rank // 2)
    return (power_law(hidden.centered**2, last=last).exponent if rank >= 3 else None), last
