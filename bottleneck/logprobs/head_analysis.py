"""What only the two factors of an output layer tell: whether H and W use their d directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ..errors import MatrixError
from ..spectrum import RankEstimate, numerical_rank
from ..spectrum.report import Finding
from .sources.hugging_face import HuggingFaceSource

ROWS = 8192
"""Rows of one update of the triangle: many more than d, few enough to hold beside the model."""
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
            f"rank {self.rank.value:,}, centred {self.rank_centered.value:,} of {self.shape[1]:,} directions; "
            f"{energy} of the energy; mean cosine {self.mean_cosine:.3f}"
        )


def directions(blocks: Iterable[NDArray[Any]], *, eps: float) -> Directions:
    r"""Return the singular values of vectors given in blocks of rows, as they are and about their mean.

    One QR factorization of [1, X] has both: with :math:`[1, X] = QR` the columns of R behind the first are a factor of
    :math:`X^⊤X`, and without their first row one of :math:`(X - 1\bar x^⊤)^⊤(X - 1\bar x^⊤)`. Exact to float64.

    Args:
        blocks: (n, d) arrays.
        eps: roundoff of their numbers.
    """
    triangle: NDArray[np.float64] | None = None
    count, units = 0, np.zeros(1)
    for block in blocks:
        rows = np.asarray(block, dtype=np.float64)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        units = units + (rows / np.where(lengths > 0, lengths, 1)).sum(0)
        bordered = np.concatenate([np.ones((len(rows), 1)), rows], 1)
        stacked = bordered if triangle is None else np.concatenate([triangle, bordered])
        triangle, count = np.asarray(np.linalg.qr(stacked, mode="r")), count + len(rows)
    if triangle is None:
        raise MatrixError("there are no vectors to analyse: give at least one block of rows")
    shape = (count, triangle.shape[1] - 1)
    values, centered = (scipy.linalg.svdvals(part)[: min(shape)] for part in (triangle[:, 1:], triangle[1:, 1:]))
    return Directions(
        shape,
        values,
        centered,
        numerical_rank(values, shape=shape, eps=eps),
        numerical_rank(centered, shape=shape, eps=eps),
        float((units @ units - count) / (count * (count - 1))) if count > 1 else 1.0,
    )


def head_analysis(source: HuggingFaceSource) -> Finding:
    """Return what the report says of a Hugging Face model's output layer.

    W about its mean is what row-centring A leaves of it: :math:`A (I - 11^⊤/M) = H (W - 1\\bar w^⊤)^⊤`. Ranks are
    judged by the roundoff of the measurement, as these are the numbers that it is made from.
    """
    layer, norm, eps = source.layer, source.norm, source.precision.value
    vocabularies = source.vocabularies
    weight = directions((rows.cpu().numpy() for rows in layer.weight.split(ROWS)), eps=eps)
    hidden = directions(_hidden(source), eps=eps)
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
    for start in range(0, source.shape[0], ROWS):
        yield source.hidden(start, start + ROWS).double().numpy()
