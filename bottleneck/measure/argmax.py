"""Which tokens a model's output layer can never predict."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Unpack

from ..core.checks import check_above_zero, check_positive, typed
from ..core.options import LAYER, Opening, takes
from ..core.progress import Progress, reporting
from ..errors import SourceError
from ..heads.log_linear import LogLinear
from ..heads.pointwise import Pointwise
from ..sources import output_weights
from ..theory import ArgmaxReport, unargmaxable


@takes(Opening)
@typed
def argmaxable(
    source: Any,
    *,
    limit: float | None = 60.0,
    workers: int = 1,
    progress: Progress | bool = False,
    **options: Unpack[Opening],
) -> ArgmaxReport:
    """Decide for each token of a source's output layer whether any context vector makes it the argmax.

    Args:
        source: an output layer as for `head`, a single softmax, log-linear or with an increasing function applied to
            each logit. A text is neither read nor asked for.
        limit: seconds for each token's linear program; a token that exceeds it is reported as unknown.
        workers: number of processes; see `theory.unargmaxable`.
        progress: where to report; ``True`` means standard error.
        options: see `LayerOptions`; the other options of `Opening` are accepted and change nothing.

    Raises:
        SourceError: for a mixture, whose argmax no single set of logits decides, or what has no output layer.
        MatrixError: for numbers that are not finite.
    """
    started = time.monotonic()
    check_positive(workers=workers)
    check_above_zero(limit=limit)
    known: Any = {name: value for name, value in options.items() if name in LAYER}
    layer = output_weights(source, **known)
    if not isinstance(layer.head, LogLinear | Pointwise):
        raise SourceError(
            f"{layer.source['path']} has a {layer.source['head']} head: the argmax of a mixture is not decided by one "
            "set of logits; give a model with a single softmax"
        )
    report = unargmaxable(layer.weight, layer.bias, seconds=limit, workers=workers, progress=reporting(progress))
    padding = range(0) if layer.own_tokens is None else range(layer.own_tokens, report.vocab)
    return replace(report, source=layer.source, padding=padding, seconds=round(time.monotonic() - started, 3))
