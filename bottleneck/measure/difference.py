"""The rank of the difference of two log-probability matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sources import Difference, FiniteColumns, Source
from ..spectrum import Precision, Spectrum, SpectrumSettings, effective_rank, find_noise, judge
from ..spectrum.judge import UNSEEN
from ..spectrum.noise import COLUMNS, LARGEST, ROWS, evenly
from ..spectrum.rules import NOISE_FACTOR
from .comparison import DifferenceRank
from .computing import compute_spectrum

SKETCHED, SKETCH_WIDTH = 1e13, 256
"""Operations T · M · min(T, M) above which the spectrum of a difference without thin factors is sketched, and the
number of the sketch's dimensions."""
COHERENT = 0.1
"""Share of the tokens whose numbers may differ by less than the step of a rounding without making a direction."""


class ObservedDifference:
    """What is seen of log P and log Q, block by block, and the rank of their difference.

    Args:
        sources: P and Q.
        precisions: those of their entries.
        vocab: number of common tokens.
    """

    def __init__(self, sources: Sequence[Source], precisions: Sequence[Precision], vocab: int) -> None:
        self._sources, self._precisions = sources, precisions
        self._squares, self._masked = np.zeros(2), False
        self._every = -(-sources[0].shape[0] // ROWS)
        self._columns = evenly(vocab, COLUMNS)
        self._sample: list[NDArray[np.float64]] = []  # of both, (2, n, m) each

    def watch(self, start: int, entries: Sequence[NDArray[Any]]) -> None:
        """Take the same rows of both sources, (n, M) each, the first of which has the number ``start``."""
        finite = [np.where(np.isneginf(each), 0.0, each).astype(np.float64) for each in entries]
        self._squares += [float((each**2).sum()) for each in finite]
        sampled = np.arange(start, start + len(entries[0])) % self._every == 0
        self._sample.append(np.stack([each[np.ix_(sampled, self._columns)] for each in finite]))
        self._masked |= any(bool(np.isneginf(each).any()) for each in entries)

    def rank(self, how: SpectrumSettings) -> DifferenceRank:
        """Return the rank of log P − log Q, which takes all entries and a pass of its own."""
        matrix: Source = Difference(*self._sources)
        if self._masked:
            matrix = FiniteColumns(matrix, progress=how.progress)
        T, M = matrix.shape
        if T * M * min(T, M) > SKETCHED and None in (source.factor_columns for source in self._sources):
            how = replace(how, method="sketch", width=SKETCH_WIDTH)
        spectrum, _ = compute_spectrum(matrix, matrix.precision.value, how)
        eps, norm = self._roundoff(spectrum)
        doubt = next(filter(None, (source.entry_warning() for source in self._sources)), "")
        rank = judge(spectrum, eps, norm=norm, rank_warning=doubt if spectrum.values.any() else "").centered
        most = min(each for each in (T, M - 1, matrix.bound.centered) if each is not None)
        nothing_seen = eps.noise is not None and math.isinf(eps.noise.deviation)
        rank = replace(rank, low=0 if nothing_seen else rank.low, high=max(rank.value, min(rank.high, most)))
        held = effective_rank(spectrum.centered, epsilon=1e-3, residual=spectrum.residual) if rank.high else 0
        return DifferenceRank(rank, most, None if nothing_seen else held, spectrum.method)

    def _roundoff(self, spectrum: Spectrum) -> tuple[Precision, float | None]:
        """Return the precision of log P − log Q, and the norm of what was rounded if the noise of that is not seen.

        What both share leaves with their difference, and their errors stay. Numbers of a token that differ by less
        than a step share their errors, which then are directions of their own, and so are those of few contexts: the
        step is infinite. An exact zero needs no doubt.
        """
        eps = max(self._precisions, key=lambda each: each.value)
        size = math.sqrt(math.prod(spectrum.shape))
        norms = [
            max(n, (each.size or 0.0) * size) for n, each in zip(np.sqrt(self._squares), self._precisions, strict=True)
        ]
        norm = float(sum(n * each.value / eps.value for n, each in zip(norms, self._precisions, strict=True)))
        inferred = any(each.assumed for each in self._precisions) and bool(spectrum.values.any())
        eps = Precision(eps.value, eps.dtype, inferred)
        both = np.concatenate(self._sample, 1)
        sample = both[0] - both[1]
        if not inferred or not sample.any():
            return eps, norm
        largest = max(LARGEST, NOISE_FACTOR * UNSEEN * norm / (size * math.sqrt(np.mean(sample**2))))
        noise = find_noise(sample, eps=eps.value, size=norm / size, largest=largest)
        if noise and noise.step > np.quantile(both.std(1), COHERENT):
            noise = replace(noise, deviation=math.inf, is_coarse=True)
        return replace(eps, noise=noise), norm if noise is None else None
