"""A fast search, in batches, for context vectors that make tokens the argmax: the first part of `unargmaxable`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .inputs import EPS, Floats

Ids = NDArray[np.int64]

BLOCK_ENTRIES = 1 << 23
"""Logits in memory at a time."""
SCALES = (1.0, 8.0, 64.0)
"""Lengths of a direction that are tried; without a bias one is enough."""
RANDOM = 1024
"""Number of random directions."""
STEPS = 40
"""Perceptron steps for each token that is the argmax of no direction."""


class Layer:
    """Logits W h + b, and bounds on their roundoff.

    Args:
        W: (M, d), finite.
        b: (M,), finite or −∞.
    """

    def __init__(self, W: Floats, b: Floats) -> None:
        self.W, self.b = W, b
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

    def logits(self, H: Floats) -> Floats:
        """Return the logits of context vectors: (n, d) → (n, M)."""
        return np.add(logits := H @ self.W.T, self.b, out=logits)

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
        logits = self.layer.logits(H)
        rows = np.arange(len(H))
        winners = logits.argmax(1)
        best = logits[rows, winners]
        logits[rows, winners] = -np.inf
        margins = best - logits.max(1)
        proved = margins > self.layer.resolution(H)
        proved &= np.isfinite(margins) | (len(self.layer.allowed) == 1)
        for row in np.flatnonzero(proved & np.isnan(self.margins[winners])):
            self.contexts[winners[row]], self.margins[winners[row]] = H[row], margins[row]
        return winners


def search(witnesses: Witnesses, *, seed: int = 0) -> dict[int, Ids]:
    """Try directions for every token, then perceptron steps for the tokens that are the argmax of none.

    The directions are the centred embeddings, the same multiplied by the inverse covariance, and random ones. A
    perceptron step adds w_i − w_j, multiplied by the inverse covariance, where token j is the argmax in place of i.

    Returns:
        For each token without a context vector, the tokens that were the argmax in its place.
    """
    layer = witnesses.layer
    allowed = layer.W[layer.allowed]
    centred = allowed - allowed.mean(0)
    spread = centred.T @ centred / max(1, len(allowed))
    whitener = np.linalg.pinv(spread, rcond=1e-10, hermitian=True)
    generator = np.random.default_rng(seed)
    scales = SCALES if layer.has_bias else (1.0,)
    for directions in (centred @ whitener, centred, generator.standard_normal((RANDOM, layer.dimension)) @ whitener):
        for scale in scales:
            for block in layer.blocks(len(directions)):
                witnesses.offer(scale * directions[block])
    tokens = witnesses.missing
    place = np.searchsorted(layer.allowed, tokens)
    H = (centred @ whitener)[place]
    rivals = np.empty((len(tokens), STEPS), dtype=np.int64)
    for step in range(STEPS if len(tokens) else 0):
        winners = np.concatenate([witnesses.offer(H[block]) for block in layer.blocks(len(H))])
        rivals[:, step] = winners
        steps = (layer.W[tokens] - layer.W[winners]) @ whitener
        size = np.sqrt(np.einsum("ij,ij->i", steps, layer.W[tokens] - layer.W[winners]).clip(min=0))
        H += steps / np.where(size > 0, size, 1)[:, None]
    left = set(witnesses.missing.tolist())
    return {
        int(token): np.setdiff1d(seen, token) for token, seen in zip(tokens, rivals, strict=True) if int(token) in left
    }
