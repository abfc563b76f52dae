"""What a measurement will take, before it is made."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..spectrum import choose, precision
from ..spectrum.choice import size
from .base import BLOCK_BYTES, Source

SIDE = 768
"""Of the products whose rate is taken: GPT-2's d, far beyond any cache's first levels."""
SECONDS_TO_CALIBRATE = 0.2
QR_SHARE = 0.4
"""Rate of a tall QR factorization, a share of a product's (measured with OpenBLAS, 50,257 × 770 float64)."""
FACTOR_COPIES = 4
"""Float64 copies of Y at the peak of the factored method: itself, centred, LAPACK's and R's source."""


@dataclass(frozen=True)
class CostEstimate:
    """What a rank measurement is expected to take: the right order of magnitude, not more."""

    contexts: int
    vocab: int
    method: str
    """That would compute the spectrum."""
    why: str
    """Why this one."""
    model_seconds: float
    """Making the rows."""
    spectrum_seconds: float
    """Decomposing the matrix."""
    memory_bytes: int
    """Model, hidden states, decomposition and one block."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the estimate as lines for people."""
        total = self.model_seconds + self.spectrum_seconds
        return "\n".join(
            [
                f"{self.contexts:,} contexts × {self.vocab:,} tokens",
                f"method  {self.method} ({self.why})",
                f"time    about {_time(total)} ({_time(self.model_seconds)} of it for the model)",
                f"memory  about {size(self.memory_bytes)}",
            ]
        )


def estimate_cost(
    source: Source,
    *,
    method: str = "auto",
    eps: str | float | None = None,
    max_memory: int | None = None,
    width: int = 1024,
    device: str = "cpu",
) -> CostEstimate:
    """Estimate what `rank` will take, from the operations and this machine's rate of matrix products.

    Weights are not loaded and no row of a model is made. A matrix that does not say how its numbers were made is read
    for that, unless ``eps`` is given.

    Args:
        source: what `open_source` returns.
        method: as for `rank`.
        eps: as for `rank`.
        max_memory: as for `rank`.
        width: of a sketch.
        device: where it would run.

    Raises:
        BottleneckError: when no method fits.
    """
    work = source.work()
    T, M = source.shape
    if work.factor_columns is not None and method in ("auto", "factored"):
        r = work.factor_columns
        name, why = "factored", f"the head's factors have {r:,} columns"
        operations, memory = (2 * 2 * M + 2 * T) * float(r) ** 2 / QR_SHARE, FACTOR_COPIES * 8 * M * r
    else:
        roundoff = (source.precision if eps is None else precision(eps)).value
        choice = choose(method, shape=source.shape, eps=roundoff, max_memory=max_memory, width=width, device=device)
        name, why, memory, least = choice.method.name, choice.why, choice.memory_bytes, float(min(T, M))
        operations = {
            "gram": T * M * least + 2 * least**3,
            "tsqr": (2 * T * M * M + 4 * least**3) / QR_SHARE,
            "dense": 4 * T * M * least / QR_SHARE,
            "sketch": 6.0 * T * M * width,
        }[name]
    return CostEstimate(
        contexts=T,
        vocab=M,
        method=name,
        why=why,
        model_seconds=work.operations / _rate(getattr(torch, source.dtype), device),
        spectrum_seconds=operations / _rate(torch.float64, device),
        memory_bytes=work.memory_bytes + memory + 2 * BLOCK_BYTES,
    )


def _rate(dtype: torch.dtype, device: str) -> float:
    """Return operations a second of a matrix product."""
    one = torch.ones(SIDE, SIDE, dtype=dtype, device=device)
    started, done = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < SECONDS_TO_CALIBRATE or not done:
        float((one @ one)[0, 0])
        done += 1
    return 2.0 * SIDE**3 * done / max(elapsed, 1e-9)


def _time(seconds: float) -> str:
    for unit, length in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"
