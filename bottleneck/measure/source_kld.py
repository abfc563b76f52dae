"""The expected pairwise KL divergence of a source's rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from ..core.checks import check_seed, typed
from ..core.devices import exact
from ..core.options import Opening, takes
from ..core.progress import Progress, reporting
from ..errors import MatrixError
from ..language_models import ModelOnText
from ..sources import Source, open_source
from ..spectrum import Precision
from ..spectrum.replaced import MASK
from .pairwise_kld import PairwiseKLD, check_pairs, pairwise_kld

NEARLY = 0.5
"""A token counts as masked everywhere if some contexts mask it by `MASK` and all others by this part of it: the
distance depends on each context's likeliest token."""
OFFSET = 100.0
"""Least mean of an output bias whose roundoff counts; that of a smaller one is lost beside the log-probabilities'."""


@takes(Opening)
@typed
def kld(
    source: Any,
    *,
    pairs: Literal["all"] | int = "all",
    seed: int = 0,
    progress: Progress | bool = False,
    **options: Unpack[Opening],
) -> PairwiseKLD:
    """Measure the expected pairwise KL divergence of a source's rows, in nats (Yang et al. 2018, appendix C.1).

    A head with rows for more tokens than the tokenizer has is also measured without them, renormalized.

    Args:
        source: as for `rank`.
        pairs: ``"all"`` for all T² ordered pairs, exactly and in one pass, or the number of pairs to draw, at least 2.
        seed: seed of the draw.
        progress: where to report; ``True`` means standard error.
        options: how the source is opened, see `Opening`.

    Raises:
        BottleneckError: for a source that cannot be read, rows that are not finite or not log-probabilities, or tokens
            that only some contexts mask by a large negative number.
    """
    started = time.monotonic()
    check_seed(seed)
    pairs = check_pairs(pairs)
    opened, report = open_source(source, **options), reporting(progress)
    opened.prepare(report)
    whole = _divergence(opened, pairs, seed, report)
    variants = {key: _divergence(each, pairs, seed, report) for key, each in opened.variants().items()}
    seconds = round(time.monotonic() - started, 3)
    return replace(whole, source=opened.description, doubt=opened.entry_warning(), variants=variants, seconds=seconds)


def _divergence(source: Source, pairs: Literal["all"] | int, seed: int, progress: Progress) -> PairwiseKLD:
    """Return the divergence of one matrix."""

    def blocks() -> Iterator[NDArray[Any]]:
        masked, nearly = np.zeros((2, source.entries_shape[1]), dtype=np.int64)
        with progress.bar("computing pairwise KL", source.entries_shape[0], "contexts") as bar:
            for rows in source.entries():
                if rows.min() < rows.max() + MASK:
                    below = rows - rows.max(1, keepdims=True)
                    masked += (below < MASK).sum(0)
                    nearly += (below < NEARLY * MASK).sum(0)
                    # A token that all contexts mask has probability 0 and no part in any divergence.
                    rows = np.where(rows == -np.inf, rows.max(1, keepdims=True) + 2 * MASK, rows)
                yield rows
                bar.advance(len(rows))
        _refuse_masks(masked, nearly, source.entries_shape[0])

    return pairwise_kld(
        blocks,
        pairs=pairs,
        seed=seed,
        shape=source.entries_shape,
        kind="logits" if source.description["kind"] in ("logits", "extended") else "log-probs",
        eps=source_precision(source),
    )


def source_precision(source: Source) -> Precision:
    """Return the precision of a source's entries; normalization hides how large logits with a common bias were."""
    bias = source.head.bias if isinstance(source, ModelOnText) else None
    offset = 0.0 if bias is None else abs(float(exact(bias.detach()[bias.isfinite()]).mean()))
    return replace(source.precision, size=offset) if offset > OFFSET else source.precision


def _refuse_masks(masked: NDArray[np.int64], nearly: NDArray[np.int64], contexts: int) -> None:
    """Refuse tokens that some contexts mask and others do not even nearly, given the number of contexts for each."""
    some = np.flatnonzero((masked > 0) & (nearly < contexts))
    if some.size:
        raise MatrixError(
            f"{masked[some[0]]:,} of {contexts:,} contexts mask token {some[0]:,} by {-MASK:,.0f} nats or more: the "
            "divergence from them is infinite; leave out the columns of such tokens"
        )
