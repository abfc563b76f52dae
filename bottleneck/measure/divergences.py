"""The expected pairwise KL divergence of a source's rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Unpack

from numpy.typing import NDArray

from .. import divergence
from ..divergence import PairwiseKLD
from ..progress import Progress, reporting
from ..sources import Opening, open_source
from ..sources.opening import shows


@shows(Opening)
def kld(
    source: Any,
    *,
    pairs: str | int = "all",
    seed: int = 0,
    progress: Progress | bool = False,
    **options: Unpack[Opening],
) -> PairwiseKLD:
    """Measure the expected pairwise KL divergence of a source's rows, in nats (Yang et al. 2018, appendix C.1).

    Args:
        source: as for `rank`.
        pairs: ``"all"`` for all T² ordered pairs, exactly and in one pass, or the number of pairs to draw, at least 2.
        seed: seed of the draw.
        progress: where to report; ``True`` means standard error.
        options: how the source is opened, see `Opening`.

    Raises:
        BottleneckError: for a source that cannot be read, or rows that are not finite or not log-probabilities.
    """
    started = time.monotonic()
    opened, report = open_source(source, **options), reporting(progress)
    opened.prepare(report)

    def blocks() -> Iterator[NDArray[Any]]:
        with report.bar("computing pairwise KL", opened.entries_shape[0], "contexts") as bar:
            for rows in opened.entries():
                yield rows
                bar.advance(len(rows))

    divergences = divergence.pairwise_kld(
        blocks,
        pairs=pairs,
        seed=seed,
        shape=opened.entries_shape,
        kind="logits" if opened.description["kind"] in ("logits", "extended") else "log-probs",
        eps=opened.precision,
    )
    return replace(divergences, source=opened.description, seconds=round(time.monotonic() - started, 3))
