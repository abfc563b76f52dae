"""The two measurements: the rank of a log-probability matrix and the pairwise divergence of its rows."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .. import divergence
from ..divergence import PairwiseKLD
from ..errors import ConfigurationError
from ..progress import SILENT, Progress
from ..spectrum import Factored, RankReport, Spectrum, choose, entry_roundoff, measure, numerical_rank, precision
from ..spectrum.compute import DEFAULT_MEMORY
from ..spectrum.gram import check_resolution
from ..spectrum.rules import MARGIN, tolerance
from .base import Source
from .sources import open_source


def rank(
    source: Any,
    *,
    data: str | None = None,
    split: str = "test",
    contexts: int | None = None,
    kind: str = "log-probs",
    method: str = "auto",
    rule: str = "press",
    eps: str | float | None = None,
    dtype: str = "float32",
    max_memory: int = DEFAULT_MEMORY,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> RankReport:
    """Measure the numerical rank of a T × M log-probability matrix, raw and row-centred.

    Args:
        source: a run folder, a store, a matrix file, a (T, M) array or tensor, or an iterable of (n, M) blocks.
        data: corpus for a run, when not the one it was trained on.
        split: of the corpus.
        contexts: only the first so many, of a run.
        kind: what a matrix holds: ``"log-probs"``, ``"logits"`` (normalized first) or ``"matrix"`` (as it is).
        method: ``"auto"`` takes thin factors where the head has them, else what fits; or ``"dense"``, ``"gram"``,
            ``"factored"``.
        rule: ``"press"`` (the papers' choice), ``"numpy"`` or ``"gap"``.
        eps: roundoff of the numbers, a type's name or a number; by default what is recorded, or what they show.
        dtype: what a run is evaluated in, ``"float32"`` or ``"float64"``.
        max_memory: bytes for the decomposition.
        device: where a run is evaluated.
        progress: where to report.

    Raises:
        BottleneckError: a source that cannot be read, numbers that are not finite or not log-probabilities, or a
            tolerance that the method cannot resolve.

    Example:
        >>> import numpy as np
        >>> logits = np.outer(np.linspace(-1, 1, 50), np.arange(10.0))
        >>> report = rank(logits, kind="logits")
        >>> report.rank.value, report.rank_centered.value
        (2, 1)
    """
    started = time.monotonic()
    opened = open_source(source, data=data, split=split, contexts=contexts, kind=kind, dtype=dtype, device=device)
    eps_used = opened.precision if eps is None else precision(eps)
    if method == "gram":
        # Press's tolerance is the finest of the three that the report shows, and a known share of σ_1 beforehand.
        check_resolution(tolerance(1.0, opened.shape, eps_used.value, "press") / MARGIN, 1.0)
    spectrum = _spectrum(opened, method, eps_used.value, max_memory, progress)
    judged: dict[str, Any] = {"shape": spectrum.shape, "eps": eps_used.value, "rule": rule}
    raw = numerical_rank(spectrum.values, **judged)
    roundoff = entry_roundoff(float((spectrum.values**2).sum()), eps_used.value)
    centered = numerical_rank(spectrum.centered, **judged, floor=roundoff)
    return RankReport(
        source=opened.description,
        spectrum=spectrum,
        eps=eps_used,
        rule=rule,
        rank=raw,
        rank_centered=centered,
        bound=asdict(opened.bound),
        embedding_size=opened.embedding_size,
        seconds=round(time.monotonic() - started, 3),
        peak_memory_bytes=peak_memory_bytes(),
    )


def kld(
    source: Any,
    *,
    pairs: str | int = "all",
    seed: int = 0,
    progress: Progress = SILENT,
    **options: Any,
) -> PairwiseKLD:
    """Measure the expected pairwise KL divergence of a source's rows, in nats; see `pairwise_kld`.

    ``options`` are those of `open_source`.
    """
    opened = open_source(source, **options)

    def blocks() -> Any:
        with progress.bar("reading log-probabilities", opened.shape[0], "contexts") as bar:
            for block in opened.blocks():
                yield block.log_probs
                bar.advance(len(block.log_probs))

    return divergence.pairwise_kld(blocks, pairs=pairs, seed=seed, shape=opened.shape)


def peak_memory_bytes() -> int:
    """Return the largest resident size of this process so far."""
    try:
        # Linux: getrusage would count what the parent held when it started this process.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _spectrum(source: Source, method: str, eps: float, max_memory: int, progress: Progress) -> Spectrum:
    factors = source.factors() if method in ("auto", "factored") else None
    with progress.bar("reading log-probabilities", source.shape[0], "contexts") as bar:
        if factors is not None:

            def thin_rows() -> Any:
                for left in factors.left():
                    yield left
                    bar.advance(len(left))

            return measure(thin_rows(), Factored(factors.right))
        if method == "factored":
            raise ConfigurationError(
                f"the factored method needs a run with a log-linear head (softmax or moc), not {_what(source)}; "
                "use --method auto"
            )

        def rows() -> Any:
            for block in source.blocks():
                yield np.asarray(block.log_probs)
                bar.advance(len(block.log_probs))

        return measure(rows(), choose(method, shape=source.shape, eps=eps, max_memory=max_memory))


def _what(source: Source) -> str:
    kind, head = source.description["kind"], source.description.get("head")
    return f"a {kind if kind in ('run', 'store') else 'matrix'}" + (f" with a {head} head" if head else "")
