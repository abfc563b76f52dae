"""The two measurements: the rank of a log-probability matrix and the pairwise divergence of its rows."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import divergence
from .._version import __version__
from ..divergence import PairwiseKLD
from ..errors import ConfigurationError, MatrixError
from ..files import cache_folder
from ..full_precision import precision_state
from ..parallel import ALONE, Processes
from ..progress import SILENT, Progress
from ..spectrum import (
    RankReport,
    Spectrum,
    SpectrumMethod,
    choose,
    judge,
    measure,
    precision,
)
from ..spectrum.base import DEFAULT_WIDTH
from ..spectrum.choice import check_resolution, default_memory
from ..spectrum.precision import EPS
from ..spectrum.registry import check_factors, takes_factors
from ..spectrum.saved import SavedState
from .base import FactorRows, Source
from .findings import findings_of, of_variant, unjudged
from .sources import FiniteColumns, HuggingFaceOptions, open_source

INF = ("refuse", "drop-columns")
"""What to do with −∞."""

LONG = 10**12
"""T · M², or with thin factors the model's operations, above which a computation takes minutes and its state is kept
on disk."""


def rank(
    source: Any,
    *,
    data: Any = None,
    split: str = "test",
    contexts: int | None = None,
    kind: str = "log-probs",
    method: str = "auto",
    rule: str = "press",
    eps: str | float | None = None,
    dtype: str = "float32",
    max_memory: int | None = None,
    width: int = DEFAULT_WIDTH,
    device: str = "cpu",
    progress: Progress = SILENT,
    processes: Processes = ALONE,
    vocab_size: int | None = None,
    hugging_face: HuggingFaceOptions | None = None,
    estimate_hidden_size: bool = False,
    inf: str = "refuse",
) -> RankReport:
    """Measure the numerical rank of a T × M log-probability matrix, raw and row-centred.

    Args:
        source: a run folder, a Hugging Face model's folder or name, a store, a matrix file, a (T, M) array or tensor,
            an iterable of (n, M) blocks, or a function from token ids (B, L) to logits (B, L, M).
        data: corpus for a run, when not the one it was trained on; corpus or ``.txt`` file for a Hugging Face model;
            batches of ids for a function.
        split: of the corpus.
        contexts: only the first so many, of a run.
        kind: what a matrix holds: ``"log-probs"``, ``"logits"`` (normalized first) or ``"matrix"`` (as it is).
        method: ``"auto"`` takes thin factors where the head has them, else what fits; or ``"dense"``, ``"gram"``,
            ``"tsqr"``, ``"sketch"``, ``"factored"``.
        rule: ``"press"`` (the papers' choice), ``"numpy"`` or ``"gap"``.
        eps: roundoff of the numbers, a type's name or a number; by default what is recorded, or what they show.
        dtype: what a run is evaluated in, ``"float32"`` or ``"float64"``.
        max_memory: bytes for the decomposition; by default 8 GiB, or what an accelerator has free.
        width: dimensions that a sketch looks at.
        device: where a run is evaluated and the matrix decomposed.
        progress: where to report.
        processes: this process and its partners under PyTorch's launcher (`launched`): contexts are sharded over
            them, and all return the report.
        vocab_size: M of a function.
        hugging_face: how a Hugging Face model is read.
        inf: ``"refuse"`` −∞, or ``"drop-columns"`` that hold it anywhere, which the report counts.
        estimate_hidden_size: whether to look for the hidden size in the row-centred spectrum.

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
    started, found = time.monotonic(), precision_state()
    if inf not in INF:
        raise ConfigurationError(f"unknown inf {inf!r}; it is one of {', '.join(INF)}")
    opened = open_source(
        source,
        data=data,
        split=split,
        contexts=contexts,
        kind=kind,
        dtype=dtype,
        device=device,
        vocab_size=vocab_size,
        hugging_face=hugging_face,
    )
    whole = opened
    if inf == "drop-columns":
        opened = FiniteColumns(whole, progress=progress)
    asked = None if eps is None else precision(eps)
    if asked is not None and asked.value < EPS["float64"]:
        raise ConfigurationError(
            f"eps {asked.value:.3g} is finer than float64's roundoff ({EPS['float64']:.3g}), in which everything is "
            "computed: no rank can be told apart below it"
        )
    check_resolution(method, shape=opened.shape, eps=(asked or opened.precision).value)
    recorded = opened.precision
    eps_used = recorded if asked is None else replace(asked, size=recorded.size)
    factors = opened.factors() if takes_factors(method) else None
    if factors is None:
        check_factors(method, _what(opened))
    else:
        _refuse_masked(opened, factors)
    if max_memory is None:  # all processes choose alike
        max_memory = min(processes.gather(default_memory(device)))
    choice = choose(
        method,
        shape=opened.shape,
        eps=eps_used.value,
        max_memory=max_memory,
        width=width,
        seed=(0, processes.index),
        factor_columns=0 if factors is None else factors.right.shape[1],
        device=device,
    )
    chosen = choice.start(None if factors is None else factors.right)
    spectrum = _spectrum(opened, factors, chosen, progress, processes)
    raw, centered = judge(spectrum, eps_used, rule=rule, recorded=recorded, caution=opened.caution)
    how: dict[str, Any] = {"method": method, "rule": rule, "eps": eps, "max_memory": max_memory, "width": width}
    how |= {"device": device, "progress": progress, "processes": processes}
    seen = recorded.rounding if asked is not None else None
    findings = [
        *([unjudged(seen)] if seen is not None else []),
        *(of_variant(key, rank(variant, **how)) for key, variant in opened.variants().items()),
        *findings_of(whole, spectrum, eps=eps_used, hidden_size=estimate_hidden_size, alone=processes.count == 1),
    ]
    return RankReport(
        source=opened.description,
        spectrum=spectrum,
        eps=eps_used,
        rule=rule,
        why=choice.why,
        precision_found=found,
        rank=raw,
        rank_centered=centered,
        bound=asdict(opened.bound),
        embedding_size=opened.embedding_size,
        findings=tuple(findings),
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
    """Measure the expected pairwise KL divergence of a source's rows, in nats (MoS paper, appendix C.1).

    Args:
        source: what `open_source` takes.
        pairs: ``"all"`` T² ordered pairs, exactly and in one pass, or a number of at least 2 to draw.
        seed: of the draw.
        progress: where to report.
        options: ``data``, ``split``, ``contexts``, ``kind``, ``dtype`` and ``device`` of `open_source`.

    Raises:
        BottleneckError: a source that cannot be read, or rows that are not finite or not log-probabilities.
    """
    opened = open_source(source, **options)

    def blocks() -> Any:
        with progress.bar("reading log-probabilities", opened.shape[0], "contexts") as bar:
            for rows in opened.entries():
                yield rows
                bar.advance(len(rows))

    entries = "logits" if opened.description["kind"] == "logits" else "log-probs"
    return divergence.pairwise_kld(
        blocks, pairs=pairs, seed=seed, shape=opened.shape, kind=entries, eps=opened.precision
    )


def peak_memory_bytes() -> int:
    """Return the largest resident size of this process so far."""
    try:
        # Linux: getrusage would count what the parent held when it started this process.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _spectrum(
    source: Source, factors: FactorRows | None, chosen: SpectrumMethod, progress: Progress, processes: Processes
) -> Spectrum:
    own = [rows for number, rows in enumerate(source.ranges()) if processes.takes(number)]
    counts = {done: number for number, done in enumerate(accumulate(map(len, own), initial=0))}

    def blocks(done: int) -> Iterator[NDArray[Any]]:
        """Yield this process's blocks, but for the first ``done`` rows of them."""
        rest = own[counts[done] :]
        return factors.left(rest) if factors else (block.log_probs for block in source.blocks(rest))

    saved = _saved_state(source, factors, chosen, progress, processes)
    rows = chosen.passes * sum(map(len, own))
    with progress.bar(f"computing singular values ({chosen.name})", rows, "contexts") as bar:
        return measure(
            blocks,
            chosen,
            exponent=source.exponent,
            saved=saved,
            processes=processes,
            what=str(source.description["path"]),
            advance=bar.advance,
        )


def _refuse_masked(source: Source, factors: FactorRows) -> None:
    """Refuse a token that the output bias masks."""
    masked = np.isneginf(factors.right).any(1)
    if masked.any():
        raise MatrixError(
            f"the output bias of {source.description['path']} is -inf for token {int(masked.argmax())}: only finite "
            "numbers can be measured; 'rank --inf drop-columns' leaves such tokens out (one masked by a large "
            "negative number, too)"
        )


def _saved_state(
    source: Source, factors: FactorRows | None, chosen: SpectrumMethod, progress: Progress, processes: Processes
) -> SavedState | None:
    """Return where the state of a long computation is kept."""
    operations = source.work().operations if factors is not None else source.shape[0] * source.shape[1] ** 2
    # A sketch's second pass begins for all processes together: one of them alone cannot go back to it.
    if operations <= LONG or (chosen.passes > 1 and processes.count > 1):
        return None
    about = {
        "identity": dict(source.identity),
        "source": {key: value for key, value in source.description.items() if key != "path"},
        "dtype": source.dtype,
        "shape": source.shape,
        "method": chosen.about(),
        "device": str(chosen.arithmetic.device),
        "block_rows": source.rows_at_once(),
        "process": [processes.index, processes.count],
        "version": __version__,
    }
    return SavedState(cache_folder() / "unfinished", about, warn=progress.line)


def _what(source: Source) -> str:
    kind, head = source.description["kind"], source.description.get("head")
    named = {"run": "a run", "store": "a store", "hugging-face": "a Hugging Face model"}
    return named.get(kind, "a matrix") + (f" with a {head} head" if head else "")
