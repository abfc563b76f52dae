"""A fast search, in batches, for context vectors that make tokens the argmax: the first part of `unargmaxable`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..core.progress import SILENT_BAR, Bar
from .inputs import EPS, Floats

Ids = NDArray[np.int64]

BLOCK_ENTRIES = 1 << 23
"""Logits in memory at a time."""
SCALES = (1.0, 8.0, 64.0)
"""Lengths of a direction that are tried; without a bias one is enough."""
RANDOM = 1024
"""Number of random directions."""
NARROWER = 2.0**30
"""Roundoff of a product in float32 over that in float64, with the rounding of both factors."""
FEW = 16
"""Tokens for each context vector, on average, that float64 compares; where there are more, it takes all."""
STEPS = 40
"""Perceptron steps for each token that is the argmax of no direction."""


class Layer:
    """Logits W h + b, and bounds on their roundoff.

    Args:
        W: (M, d), finite.
        b: (M,), finite or −∞.
    """

    def __init__(self, W: Floats, b: Floats) -> None:
        self.W, self.b, self.narrow = W, b, W.astype(np.float32)
        self.vocab, self.dimension = W.shape
        finite = np.isfinite(b)
        self.allowed = np.flatnonzero(finite)
        self.has_bias = bool(np.ptp(b[finite])) if finite.any() else False
        # The error of a sum of d products is at most (d + 2) ε/2 ‖w‖ ‖h‖ in any order, that of a difference twice that.
        roundoff = 2 * (self.dimension + 2) * EPS
        self.weight_resolution = roundoff * float(np.sqrt(np.einsum("ij,ij->i", W, W)).max())
        """Largest roundoff, in float64, of the difference between two logits without biases, for ‖h‖ = 1."""
        self.bias_resolution = roundoff * float(abs(b[finite]).max(initial=0.0))
        """The part of the roundoff that does not depend on h."""

    def resolution(self, H: Floats) -> Floats:
        """Return the largest roundoff of the difference between two logits for each context vector, (…, d) → (…)."""
        return np.asarray(self.weight_resolution * np.linalg.norm(H, axis=-1) + self.bias_resolution)

    def separating(self, above: Ids, below: Ids, h: Floats, share: float) -> Floats | None:
        """Return h, scaled so that every logit of some tokens is proved to exceed those of others, or ``None``.

        ``share`` is the weight that a linear program gave to the biases; h / share then is its solution.
        """
        rising = self.W @ h
        gap = float(rising[above].min() - rising[below].max())
        scales = [1.0] if not self.has_bias else [1 / share] if share > 1e-9 else []
        if self.has_bias and gap > 0:  # long enough to outweigh the biases
            scales.append(2 * float(np.ptp(self.b[self.allowed])) / gap + 1)
        for scale in scales:
            logits = scale * rising + self.b
            if logits[above].min() - logits[below].max() > self.resolution(scale * h):
                return scale * h
        return None

    def two_largest(self, H: Floats) -> tuple[Ids, Floats, Floats]:
        """Return the argmax tokens of context vectors (n, d), their logits and the next largest ones, (n,) each.

        Float32 says which tokens can be among the two; float64 compares these.
        """
        rows, narrow = np.arange(len(H)), H.astype(np.float32)
        logits = np.add(logits := narrow @ self.narrow.T, self.b.astype(np.float32), out=logits)
        winners = logits.argmax(1)
        best, logits[rows, winners] = logits[rows, winners], -np.inf
        least = logits.max(1) - 2 * NARROWER * self.resolution(H)
        logits[rows, winners] = best
        row, token = np.nonzero(logits >= least.astype(np.float32)[:, None])
        if not np.isfinite(least).all() or len(row) > FEW * len(H):
            logits = np.add(logits := H @ self.W.T, self.b, out=logits)
            winners = logits.argmax(1)
            best, logits[rows, winners] = logits[rows, winners], -np.inf
            return winners, best, logits.max(1)
        exact = np.einsum("ij,ij->i", H[row], self.W[token]) + self.b[token]
        order = np.lexsort((-exact, row))
        first = order[np.searchsorted(row[order], rows)]
        second = order[np.searchsorted(row[order], rows) + 1]
        return token[first], exact[first], exact[second]

    def blocks(self, count: int) -> Iterator[slice]:
        """Yield slices of ``count`` context vectors whose logits fit a block."""
        at_once = max(1, BLOCK_ENTRIES // self.vocab)
        return (slice(start, min(start + at_once, count)) for start in range(0, count, at_once))


class Witnesses:
    """For each token that is known to be argmaxable, a context vector that makes it the argmax."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.contexts = np.full((layer.vocab, layer.dimension), np.nan)
        self.margins = np.full(layer.vocab, np.nan)

    @property
    def missing(self) -> Ids:
        """Ids of the tokens without a context vector so far; masked tokens are left out."""
        return self.layer.allowed[np.isnan(self.margins[self.layer.allowed])]

    def offer(self, H: Floats) -> Ids:
        """Return the argmax tokens (n,) of context vectors (n, d), and keep each vector that proves a new token."""
        winners, best, second = self.layer.two_largest(H)
        margins = best - second
        proved = margins > self.layer.resolution(H)
        proved &= np.isfinite(margins) | (len(self.layer.allowed) == 1)
        for row in np.flatnonzero(proved & np.isnan(self.margins[winners])):
            self.contexts[winners[row]], self.margins[winners[row]] = H[row], margins[row]
        return winners


def search(witnesses: Witnesses, *, seed: int = 0, bar: Bar = SILENT_BAR) -> dict[int, Ids]:
    """Try a direction for every token, others for those left, then perceptron steps for those that are left still.

    The first direction is the token's own centred embedding, multiplied by the inverse covariance; the others are the
    centred embedding itself, and random ones. A perceptron step adds w_i − w_j, multiplied by the inverse covariance,
    where token j is the argmax in place of i.

    Returns:
        For each token without a context vector, the tokens that were the argmax in its place.
    """
    layer = witnesses.layer
    if not len(layer.allowed):
        return {}
    allowed = layer.W[layer.allowed]
    centred = allowed - allowed.mean(0)
    spread = centred.T @ centred / max(1, len(allowed))
    whitener = np.linalg.pinv(spread, rcond=1e-10, hermitian=True)
    generator = np.random.default_rng(seed)

    def offer(H: Floats) -> Ids:
        """Offer context vectors block by block; report how many tokens they decided."""
        winners = []
        for block in layer.blocks(len(H)):
            before = len(witnesses.missing)
            winners.append(witnesses.offer(H[block]))
            bar.advance(before - len(witnesses.missing))
        return np.concatenate(winners)

    def place() -> Ids:
        return np.searchsorted(layer.allowed, witnesses.missing)

    for scale in SCALES if layer.has_bias else (1.0,):
        for directions in (
            lambda: centred[place()] @ whitener,
            lambda: centred[place()],
            lambda: generator.standard_normal((RANDOM, layer.dimension)) @ whitener,
        ):
            if len(witnesses.missing):
                offer(scale * directions())
    tokens = witnesses.missing
    H = centred[place()] @ whitener
    seen: dict[int, list[int]] = {int(token): [] for token in tokens}
    for _ in range(STEPS if len(tokens) else 0):
        winners = offer(H)
        for token, winner in zip(tokens.tolist(), winners.tolist(), strict=True):
            seen[token].append(winner)
        left = np.isnan(witnesses.margins[tokens])
        tokens, winners, H = tokens[left], winners[left], H[left]
        if not len(tokens):
            break
        steps = (layer.W[tokens] - layer.W[winners]) @ whitener
        size = np.sqrt(np.einsum("ij,ij->i", steps, layer.W[tokens] - layer.W[winners]).clip(min=0))
        H += steps / np.where(size > 0, size, 1)[:, None]
    return {token: np.setdiff1d(seen[token], token) for token in witnesses.missing.tolist()}
