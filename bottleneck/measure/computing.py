"""Compute the singular values of a source, and the settings of that computation."""

import logging
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Unpack

from numpy.typing import NDArray

from ..core.checks import typed
from ..core.clock import each_spent, spent
from ..core.files import cache_folder
from ..core.interruption import note_if_interrupted
from ..core.options import OPENING, MeasurementOptions, Option, Ranking, Spectral, takes
from ..core.parallel import ALONE, Processes
from ..core.version import __version__
from ..errors import Function, MatrixError, Parameter, Sentence
from ..sources import KINDS, FactorRows, Source, find
from ..sources.array_files import numbers_of
from ..sources.measurement import prepared
from ..spectrum import (
    Factored,
    RangeFinder,
    Spectrum,
    SpectrumMethod,
    SpectrumSettings,
    choose,
    decompose,
    matrix_spectrum,
)
from ..spectrum.choice import check_factors, check_resolution
from ..spectrum.replaced import MASK
from ..spectrum.saved import SavedState

logger = logging.getLogger(__name__)

LONG = 10**12
"""Number of operations above which a computation takes minutes and its state is kept on disk: T · M², or with thin
factors those of the model."""

NOTHING_KEPT = "no singular values are kept; a dump keeps the rows that it writes"
"""Sentence for a short computation that was interrupted."""

MASKED = Sentence(
    Function("rank"), " with ", Parameter("inf", "drop-columns"), " leaves such tokens out (numbers that lie "
    f"{-MASK:,.0f} or more below the largest of every row mask a token, as -inf does)",
)  # fmt: skip
"""Advice for tokens of probability 0."""


class SpectrumOptions(MeasurementOptions, Spectral, total=False):
    """The options of `singular_values`."""

    processes: Annotated[
        Processes, Option(ALONE, "Processes started by torchrun (see `launched`), which share the contexts.")
    ]


class RankOptions(SpectrumOptions, Ranking, total=False):
    """The options of `rank`."""

    checkpoint: Annotated[bool, Option(False, "Add what H, W, gradient and loss show, as of several checkpoints.")]


def compute_spectrum(source: Source, eps: float, how: SpectrumSettings) -> tuple[Spectrum, str]:
    """Return the singular values of a source's matrix, and the reason why their method was chosen.

    Args:
        source: the matrix.
        eps: relative roundoff of its entries; the method must resolve the tolerance that follows from it.
        how: settings of the computation.

    Raises:
        MatrixError: for numbers that cannot be measured, or a method that is too imprecise or does not fit in memory.
        ConfigurationError: for an unknown method, or one that needs thin factors that the source does not have.
    """
    check_resolution(how.method, shape=source.shape, eps=eps)
    factors = source.factors() if how.method == "auto" or how.method == Factored.name else None
    if factors is None:
        check_factors(how.method, _what(source))
    else:
        _refuse_masked(source, factors)
    factor_columns = 0 if factors is None else factors.right.shape[1]
    choice = choose(how, shape=source.shape, eps=eps, factor_columns=factor_columns)
    logger.info("%s: method %s (%s)", source.description["path"], choice.name, choice.why)
    chosen = choice.start(None if factors is None else factors.right)
    return _run_method(source, factors, chosen, how), choice.why


def _run_method(
    source: Source, factors: FactorRows | None, chosen: SpectrumMethod | RangeFinder, how: SpectrumSettings
) -> Spectrum:
    ranges = [rows for number, rows in enumerate(source.ranges()) if how.processes.takes(number)]
    starts = [*accumulate(map(len, ranges), initial=0)]

    def blocks(done: int) -> Iterator[NDArray[Any]]:
        """Yield the rows of this process after its first ``done``; the block in which these end is computed again."""
        number = bisect_right(starts, done) - 1
        rest, skipped = ranges[number:], done - starts[number]
        whole = factors.left(rest) if factors else (block.log_probs for block in source.blocks(rest))
        for rows in each_spent("read", whole):
            yield rows[skipped:]
            skipped = 0

    saved = _saved_state(source, factors, chosen, how)
    rows = (2 if isinstance(chosen, RangeFinder) else 1) * starts[-1]
    kept = saved.kept if saved else lambda: NOTHING_KEPT
    showing = how.progress.bar(f"singular values ({chosen.name})", rows, "contexts")
    with note_if_interrupted(kept), showing as bar, spent("decomposed"):
        return decompose(
            blocks,
            chosen,
            exponent=source.exponent,
            saved=saved,
            processes=how.processes,
            what=str(source.description["path"]),
            remedy=MASKED,
            bar=bar,
        )


def _refuse_masked(source: Source, factors: FactorRows) -> None:
    """Refuse a source whose output bias masks a token."""
    masked = factors.right.masked
    if masked.any():
        raise MatrixError(
            f"the output bias of {source.description['path']} is -inf for token {int(masked.argmax())}: only finite "
            "numbers can be measured; ",
            MASKED,
        )


def _saved_state(
    source: Source, factors: FactorRows | None, chosen: SpectrumMethod | RangeFinder, how: SpectrumSettings
) -> SavedState | None:
    """Return the file that keeps the state of a long computation, or ``None`` for a short one."""
    operations = source.cost.operations if factors is not None else source.shape[0] * source.shape[1] ** 2
    if operations <= LONG:
        return None
    about = {
        "identity": dict(source.identity),
        "source": {key: value for key, value in source.description.items() if key != "path"},
        "dtype": source.dtype,
        "shape": source.shape,
        "width": how.width,
        "device": str(chosen.arithmetic.device),
        "block_rows": source.rows_at_once(),
        "process": [how.processes.index, how.processes.count],
        "version": __version__,
    }
    return SavedState(cache_folder() / "unfinished", about, warn=how.progress.line)


def _what(source: Source) -> str:
    kind, head = source.description["kind"], source.description.get("head")
    named = {"run": "a run", "store": "a store", "hugging-face": "a Hugging Face model"}
    return named.get(kind, "a matrix") + (f" with a {head} head" if head else "")


@takes(SpectrumOptions)
@typed
def singular_values(source: Any, **options: Unpack[SpectrumOptions]) -> Spectrum:
    """Return the singular values of a source's matrix, raw and row-centred.

    Without ``kind``, an array, a tensor or blocks of rows are measured as they are. An iterator of blocks is read once
    and not kept.

    Args:
        source: as for `rank`.
        options: see `SpectrumOptions`.

    Raises:
        BottleneckError: for a source that cannot be read, or numbers that are not finite.

    Example:
        >>> import numpy as np
        >>> singular_values(np.diag([3.0, 2.0, 1.0])).values.round(6).tolist()
        [3.0, 2.0, 1.0]
    """
    how = SpectrumSettings.of(options)
    as_it_is = not options.keys() & OPENING.keys() - {"device"} and not isinstance(source, str | Path)
    source_kind = find(source) if as_it_is else None
    if source_kind is KINDS["array"] and not hasattr(source, "columns"):
        return matrix_spectrum(source, how)
    if source_kind is KINDS["blocks"]:
        return matrix_spectrum((numbers_of(rows, "a block of rows") for rows in source), how)
    if source_kind in (KINDS["array"], KINDS["zarr"]) and hasattr(source, "shape"):
        options["kind"] = "matrix"
    (opened,) = prepared([source], options)
    return compute_spectrum(opened, opened.expected_precision.value, how)[0]
