"""What only the two factors of an output layer tell: whether H and W use their d directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MatrixError
from ..spectrum import EPS, RankEstimate, numerical_rank, tolerance
from ..spectrum.report import Finding
from .sources.hugging_face import HuggingFaceSource

ROWS = 8192
"""Rows of one update: more than d, few enough to hold in float64 beside the model."""
SHARES = (0.9, 0.99, 0.999)
"""Of the energy Σσ²."""


@dataclass(frozen=True, eq=False)
class Directions:
    """How a set of n vectors fills its d dimensions."""

    shape: tuple[int, int]
    """(n, d)."""
    values: NDArray[np.float64]
    """(min(n, d),), singular values, descending."""
    centered: NDArray[np.float64]
    """The same with the mean vector subtracted."""
    rank: RankEstimate
    rank_centered: RankEstimate
    mean_cosine: float
    """Mean cosine of two different vectors: anisotropy (Ethayarajh 2019, §3.2)."""

    def energy(self, share: float) -> int:
        """Return how many directions hold this share of Σσ²."""
        return int(np.searchsorted(np.cumsum(self.values**2), share * float((self.values**2).sum())) + 1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "shape": list(self.shape),
            "rank": asdict(self.rank),
            "rank_centered": asdict(self.rank_centered),
            "directions_for_energy": {f"{share:g}": self.energy(share) for share in SHARES},
            "mean_cosine": self.mean_cosine,
            "singular_values": self.values.tolist(),
            "singular_values_centered": self.centered.tolist(),
        }

    def summary(self) -> str:
        """Return one line for people."""
        energy = ", ".join(f"{self.energy(share):,} hold {100 * share:g} %" for share in SHARES)
        return (
            f"rank {self.rank}, centred {self.rank_centered} of {self.shape[1]:,} directions; "
            f"{energy} of the energy; mean cosine {self.mean_cosine:.3f}"
        )


def directions(blocks: Iterable[NDArray[Any]]) -> Directions:
    r"""Return the singular values of vectors given in blocks of rows, as they are and about their mean.

    They are the square roots of the eigenvalues of :math:`X^⊤X` and :math:`X^⊤X - n \bar x \bar x^⊤` in float64, which
    resolves what is above 10⁻⁷ of the largest: ranks are judged by the roundoff of float32, which is coarser.

    Args:
        blocks: (n, d) arrays of real numbers.

    Raises:
        MatrixError: without any vectors.
    """
    gram, total, units, count = np.zeros((1, 1)), np.zeros(1), np.zeros(1), 0
    for block in blocks:
        rows = np.asarray(block, dtype=np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        units = units + np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0) @ rows
        gram, total, count = gram + rows.T @ rows, total + rows.sum(0), count + len(rows)
    if not count:
        raise MatrixError("there are no vectors to analyse: give at least one block of rows")
    shape = (count, len(gram))
    values = _square_roots(gram)[: min(shape)]
    centered = _square_roots(gram - np.outer(total, total) / count)[: min(shape)]
    return Directions(
        shape,
        values,
        centered,
        numerical_rank(values, shape=shape, eps="float32"),
        # Cancellation leaves the roundoff of the raw squares behind: nothing below theirs is told apart.
        numerical_rank(
            centered, shape=shape, eps="float32", floor=tolerance(values[0], shape, EPS["float32"], "press")
        ),
        float((units @ units - count) / (count * (count - 1))) if count > 1 else 1.0,
    )


def _square_roots(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the square roots of the eigenvalues, descending; roundoff below zero is zero."""
    return np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0))


def head_analysis(source: HuggingFaceSource) -> Finding:
    """Return what the report says of a Hugging Face model's output layer.

    W about its mean is what row-centring A leaves of it: :math:`A (I - 11^⊤/M) = H (W - 1\\bar w^⊤)^⊤`.
    """
    layer, norm = source.layer, source.norm
    vocabularies = source.vocabularies
    weight = directions(rows.cpu().numpy() for rows in layer.weight.split(ROWS))
    hidden = directions(_hidden(source))
    has = [
        "tied embeddings" if layer.tied else "embeddings of its own",
        "a bias" if layer.bias is not None else "no bias",
        *([f"logits scaled by {layer.scale:g}"] if layer.scale != 1 else []),
        *([f"soft-capped at {layer.soft_cap:g}"] if layer.soft_cap is not None else []),
        *(["a LayerNorm before it"] if norm is not None else []),
    ]
    sizes = f"{vocabularies['model']:,} rows, {vocabularies['tokenizer']:,} tokens in the tokenizer"
    return Finding(
        "head_analysis",
        {
            "tied": layer.tied,
            "bias": layer.bias is not None,
            "scale": layer.scale,
            "soft_cap": layer.soft_cap,
            "final_layer_norm": None if norm is None else {"name": norm.name, "offset": norm.offset},
            "vocabularies": vocabularies,
            "logit_difference": source.logit_difference,
            "weight": weight.to_dict(),
            "hidden": hidden.to_dict(),
        },
        (
            ("output layer", f"{', '.join(has)}; {sizes}"),
            ("own logits", f"within {source.logit_difference:.2g} of the model's on a sample"),
            ("W", weight.summary()),
            ("H", hidden.summary()),
        ),
    )


def _hidden(source: HuggingFaceSource) -> Iterator[NDArray[Any]]:
    for hidden in source.hidden(source.ranges(ROWS)):
        yield hidden.double().numpy()
