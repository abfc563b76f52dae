"""Estimate the time and memory of a measurement before it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import psutil
import torch

from ..core.devices import resolve_device
from ..core.machine import duration
from ..errors import SourceError
from ..language_models.source import BLOCK_BYTES
from ..results.base import Result
from ..results.quantity import ANSWER, TABLE, Quantity
from ..sources import PartialSource, Source
from ..sources.measurement import measurement, opened
from ..spectrum import SpectrumSettings, choose, precision
from ..spectrum.choice import size
from .computing import RankOptions

SIDE = 768
"""Size of the matrices whose product is timed: d of GPT-2, too large for the first levels of a cache."""
SECONDS_TO_CALIBRATE = 0.2


@dataclass(frozen=True, repr=False)
class CostEstimate(Result, kind="cost"):
    """Expected time and memory of a rank measurement, correct to an order of magnitude: numbers without a picture."""

    source: Mapping[str, Any]
    """What would be measured: path, kind, head, corpus, split."""
    contexts: int
    vocab: int
    method: str
    """Method that would compute the spectrum."""
    why: str
    """Why this method would be chosen."""
    model_seconds: float
    """Seconds to compute the rows."""
    spectrum_seconds: float
    """Seconds to decompose the matrix."""
    memory_bytes: int
    """Bytes of Python and its libraries, the model, its hidden states, the decomposition and two blocks."""

    def quantities(self) -> Iterator[Quantity]:
        """Yield the size, the method, the time and the memory."""
        total = self.model_seconds + self.spectrum_seconds
        time_text = f"about {duration(total)} ({duration(self.model_seconds)} of it for the model)"
        yield Quantity("", None, "matrix", text=f"{self.contexts:,} contexts × {self.vocab:,} tokens")
        yield Quantity("method", self.method, "method", ANSWER | TABLE, f"{self.method} ({self.why})")
        yield Quantity("seconds", total, "time", ANSWER | TABLE, time_text)
        yield Quantity("memory_bytes", self.memory_bytes, "memory", ANSWER | TABLE, f"about {size(self.memory_bytes)}")


@measurement(RankOptions, opens=opened)
def estimate_cost(source: Source, **options: Unpack[RankOptions]) -> CostEstimate:
    """Estimate the time and memory of `rank` from its operations and this machine's rate of matrix products.

    No weights are loaded, no row of a model is computed, and no matrix is read: where the precision of a matrix is not
    recorded, its type stands for it.

    Args:
        source: as for `rank`.
        options: as for `rank`.

    Raises:
        BottleneckError: when no method fits.
    """
    if isinstance(source, PartialSource):
        raise SourceError(
            f"{source.name} holds a part of each distribution: the cost of its lower bound is not estimated"
        )
    how, eps, cost = SpectrumSettings.of(options), options.get("eps"), source.cost
    roundoff = source.expected_precision if eps is None else precision(eps)
    choice = choose(how, shape=source.shape, eps=roundoff.value, factor_columns=source.factor_columns or 0)
    return CostEstimate(
        source=source.description,
        contexts=source.shape[0],
        vocab=source.shape[1],
        method=choice.name,
        why=choice.why,
        model_seconds=cost.operations / _rate(getattr(torch, source.dtype), resolve_device(how.device)),
        spectrum_seconds=choice.cost.operations / _rate(torch.float64, str(how.arithmetic.device)),
        memory_bytes=psutil.Process().memory_info().rss + cost.memory_bytes + choice.cost.memory + 2 * BLOCK_BYTES,
    )


def _rate(dtype: torch.dtype, device: str) -> float:
    """Return the operations per second of a matrix product."""
    one = torch.ones(SIDE, SIDE, dtype=dtype, device=device)
    started, done = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < SECONDS_TO_CALIBRATE or not done:
        float((one @ one)[0, 0])
        done += 1
    return 2.0 * SIDE**3 * done / max(elapsed, 1e-9)
