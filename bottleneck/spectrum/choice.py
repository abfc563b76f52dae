"""Which method computes a spectrum, from the matrix's shape, the numbers' roundoff and the memory there is."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..errors import ConfigurationError, MatrixError
from .accelerator import on
from .arithmetic import Arithmetic
from .base import SpectrumMethod
from .dense import Dense
from .gram import RESOLUTION, Gram
from .rules import MARGIN, tolerance
from .sketch import COPIES as SKETCH_COPIES
from .sketch import Sketch
from .tsqr import TSQR
from .wide_gram import WideGram

METHODS = ("auto", "dense", "gram", "tsqr", "sketch", "factored")
DEFAULT_MEMORY = 8 << 30
"""Bytes a computation may take when nobody says otherwise."""
DEFAULT_WIDTH = 1024
"""Width of a sketch: beyond any output layer's rank bound, within any machine's memory."""
DENSE_COPIES = 4
"""Float64 copies of the matrix that the dense method holds at its peak: rows, matrix, LAPACK's copy and workspace."""
WIDE_GRAM_COPIES = 3
"""T × T float64 matrices that gram holds at its peak beside the rows, when T < M."""
LARGEST_INDEX = 2**31 - 1
"""LAPACK is built with 32-bit integers: what lies beyond crashes it, or returns garbage."""
SMALL = 1 << 24
"""Below so many entries the dense method takes seconds: no reason to give up accuracy."""


class Choice(NamedTuple):
    """A method, ready for rows."""

    method: SpectrumMethod
    why: str
    """The reason, in a few words."""
    memory_bytes: int = 0
    """What it holds at its peak, beside the rows' own block; 0 where nobody asked."""


def choose(
    method: str,
    *,
    shape: tuple[int, int],
    eps: float,
    max_memory: int | None = None,
    width: int = DEFAULT_WIDTH,
    seed: int | tuple[int, ...] = 0,
    device: str = "cpu",
) -> Choice:
    """Return the method for a T × M matrix.

    Args:
        method: ``"dense"``, ``"gram"``, ``"tsqr"``, ``"sketch"``, or ``"auto"``: dense for small matrices, tsqr where
            Press's tolerance lies below what gram resolves, gram for the rest, and a sketch where none fits.
        shape: (T, M).
        eps: roundoff of the numbers.
        max_memory: bytes, of the device; by default `DEFAULT_MEMORY`, or what is free on an accelerator.
        width: k of a sketch.
        seed: of a sketch.
        device: ``"cpu"`` or ``"cuda"``.

    Raises:
        ConfigurationError: for an unknown method.
        MatrixError: when no method fits into the memory.
    """
    check_name(method)
    arithmetic = on(device)
    allowed = default_memory(device) if max_memory is None else max_memory
    T, M = shape
    wide = T < M
    side = min(T, M)
    needed = {
        "dense": DENSE_COPIES * 8 * T * M,
        "gram": 8 * (T * M + WIDE_GRAM_COPIES * T * T) if wide else arithmetic.gram_copies * 8 * M * M,
        "tsqr": arithmetic.tsqr_copies * 8 * M * M,
        "sketch": SKETCH_COPIES * 8 * M * width,
    }
    entries = {"dense": T * M, "gram": side * side, "tsqr": M * M, "sketch": M * width}
    why = "asked for"
    if method == "auto":
        method, why = _preferred(T, M, eps)
        if needed["sketch"] <= allowed:
            if needed[method] > allowed:
                method, why = "sketch", f"{method} would need {size(needed[method])}; {size(allowed)} are allowed"
            elif entries[method] > LARGEST_INDEX:
                method, why = "sketch", f"{method} would need {entries[method]:,} numbers; LAPACK has no index for them"
    other, less = "--method sketch", "measure fewer contexts"
    if method == "tsqr":
        less = "use --method sketch"  # its triangles have M columns, however few the contexts
    if method == "sketch":
        other, less = "a smaller --width", "take a smaller --width"
    if entries[method] > LARGEST_INDEX:
        raise MatrixError(
            f"the {method} method would hand LAPACK an array of {entries[method]:,} numbers, and it counts to "
            f"{LARGEST_INDEX:,}: use {other}, or the run itself as SOURCE when its head is log-linear"
        )
    if needed[method] > allowed:
        raise MatrixError(
            f"the {method} method needs {size(needed[method])} for a {T:,} × {M:,} matrix, more than the "
            f"{size(allowed)} allowed: raise --max-memory, or {less}"
        )
    try:
        if method == "gram" and wide:
            return Choice(WideGram(M, arithmetic=arithmetic), why, needed[method])
        return Choice(make(method, M, width=width, seed=seed, arithmetic=arithmetic), why, needed[method])
    except torch.OutOfMemoryError as error:
        raise MatrixError(
            f"{device} has no {size(needed[method])} free for the {method} method: use --device cpu"
        ) from error


def make(
    method: str,
    columns: int,
    *,
    width: int = DEFAULT_WIDTH,
    seed: int | tuple[int, ...] = 0,
    arithmetic: Arithmetic | None = None,
) -> SpectrumMethod:
    """Return a streaming method for M columns and any number of rows; ``"auto"`` is dense."""
    if method == "sketch":
        return Sketch(columns, width=width, seed=seed, arithmetic=arithmetic)
    made: dict[str, type[Dense | Gram | TSQR]] = {"auto": Dense, "dense": Dense, "gram": Gram, "tsqr": TSQR}
    return made[method](columns, arithmetic=arithmetic)


def check_name(method: str) -> None:
    """Refuse what is no method, or none for a matrix."""
    if method not in METHODS:
        raise ConfigurationError(f"unknown method {method!r}; known methods are {', '.join(METHODS)}")
    if method == "factored":
        raise ConfigurationError(
            "the factored method needs a log-linear head (Softmax or MoC) and its hidden states, not a matrix: "
            "give the run itself as SOURCE, or use --method auto"
        )


def size(count: int) -> str:
    """Return a number of bytes for people."""
    for unit, bytes_in_it in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= bytes_in_it:
            return f"{count / bytes_in_it:.1f} {unit}"
    return f"{count} bytes"


def _preferred(T: int, M: int, eps: float) -> tuple[str, str]:
    if T * M <= SMALL:
        return "dense", "the matrix is small"
    if tolerance(1.0, (T, M), eps, "press") / MARGIN >= RESOLUTION:
        return "gram", f"the tolerance for eps {eps:.3g} lies above what it resolves"
    if T < M:
        return "dense", f"fewer contexts than tokens, and a tolerance below what gram resolves (eps {eps:.3g})"
    return "tsqr", f"the tolerance for eps {eps:.3g} lies below what gram resolves"


def default_memory(device: str) -> int:
    """Return the bytes a decomposition may take by default: `DEFAULT_MEMORY`, or what an accelerator has free."""
    found = on(device).device
    if found.type != "cuda":
        return DEFAULT_MEMORY
    free, _ = torch.cuda.mem_get_info(found)
    return int(free)
