"""The spectrum of output embeddings or hidden states: how many of their d dimensions they use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.checks import typed
from ..core.devices import exact
from ..core.full_precision import full_precision
from ..errors import MatrixError, OutputError
from ..results.base import Drawings, Result
from ..results.quantity import ANSWER, NOWHERE, TABLE, Quantity
from ..spectrum import (
    EPS,
    Arithmetic,
    RankEstimate,
    arithmetic_for,
    entropy_rank,
    numerical_rank,
    stable_rank,
    tolerance,
)
from ..spectrum.arithmetic import Norms, Spectra
from ..spectrum.base import State, Stream
from ..spectrum.blocks import as_array, check_dense
from ..spectrum.certificate import finish
from ..spectrum.compute import extended, started
from ..spectrum.gram import Gram
from ..spectrum.rules import NOTHING

ROWS = 8192
"""Rows of one update: more than d, and few enough to fit in memory in float64 beside the model."""
SHARES = (0.9, 0.99, 0.999)
"""Shares of the energy Σσ² that are reported."""


@dataclass(frozen=True, eq=False, repr=False)
class Directions(Result, kind="directions"):
    """Singular values and ranks of a set of n vectors of d dimensions."""

    shape: tuple[int, int]
    """(n, d)."""
    values: NDArray[np.float64] = field(metadata={"key": "singular_values"})
    """(min(n, d),), the singular values, descending."""
    centered: NDArray[np.float64] = field(metadata={"key": "singular_values_centered"})
    """The singular values after the mean vector is subtracted."""
    rank: RankEstimate
    rank_centered: RankEstimate
    mean_cosine: float | None
    """Mean cosine of pairs of different vectors, a measure of anisotropy (Ethayarajh 2019, §3.2); vectors of zeros,
    which have no direction, are left out. ``None`` for fewer than two others."""
    zeros: int
    """Number of vectors of zeros."""
    frobenius_relative_error: float
    """The certificate: relative difference of Σσ² and the sum of the squared entries; see `Spectrum`."""
    spread: float = 1.0
    """Largest norm of a column over the smallest one that is not 0."""

    def energy(self, share: float) -> int:
        """Return the number of leading directions that hold this share of Σσ²."""
        held = np.cumsum(self.values**2)
        return int(np.searchsorted(held, share * float(held[-1])) + 1) if held[-1] else 0

    def quantities(self) -> Iterator[Quantity]:
        """Yield the ranks, and how the directions are spread."""
        energy = {f"{share:g}": self.energy(share) for share in SHARES}
        held = f"{', '.join(f'{100 * float(share):g} % in {count:,}' for share, count in energy.items())} directions"
        entropy, stable = entropy_rank(self.values), stable_rank(self.values)
        ranks = f"{self.rank}, with their mean subtracted {self.rank_centered}"
        yield Quantity("", None, "vectors", text=f"{self.shape[0]:,} of {self.shape[1]:,} dimensions")
        yield Quantity("rank", self.rank, "rank", ANSWER | TABLE, ranks)
        yield Quantity("directions_for_energy", energy, "energy Σσ²", text=held)
        yield Quantity("entropy_rank", entropy, "entropy, stable rank", text=f"{entropy:.1f}, {stable:.2f}")
        yield Quantity("stable_rank", stable, shown=NOWHERE)
        yield Quantity("mean_cosine", self.mean_cosine, "mean cosine", ANSWER | TABLE, self.cosine)

    def panels(self, of: str = "") -> Drawings:
        """Return a panel of the singular values, and of those with the mean vector subtracted."""
        from ..results.plotting.measures import draw_descending

        if not self.values.any():
            raise OutputError(NOTHING)
        curves = {"with the mean": self.values, "mean subtracted": self.centered}
        return [partial(draw_descending, curves=curves, ylabel=rf"$\sigma_i${of and f' of {of}'}")]

    @property
    def cosine(self) -> str:
        """The mean cosine as text, and which vectors it leaves out."""
        value = "unknown" if self.mean_cosine is None else f"{self.mean_cosine:.3f}"
        return f"{value}{f' without {self.zeros:,} of zeros' if self.zeros else ''}"

    def one_line(self) -> str:
        """Return one line for people."""
        return "; ".join(f"{label} {text}" for label, text in self.rows())


@final
class VectorGram(Gram):
    r"""Square roots of the eigenvalues of :math:`X^⊤X` and :math:`X^⊤X - n \bar x \bar x^⊤`, of blocks of rows.

    The state is XᵀX and the sum of the rows.
    """

    def add(self, state: State, rows: Tensor) -> State:
        """Add to both sums."""
        total = state[1] + rows.sum(0)
        self.arithmetic.add_square(state[0], rows.contiguous())
        return state[0], total

    def decompose(self, stream: Stream, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        """Decompose XᵀX raw and centred."""
        (gram, total), (count, squared) = stream.state, stream.totals[:2].tolist()
        centered = gram - torch.outer(total, total / count)
        (raw, driver), (middle, _) = (arithmetic.eigenvalues(each, careful=careful) for each in (gram, centered))
        # Subtracting the mean row of X centres the rows of its transpose.
        norms = Norms((self.columns, int(count)), squared, squared - float(total @ total) / count, squared > 0)
        return Spectra(np.sqrt(np.maximum(raw, 0.0)), np.sqrt(np.maximum(middle, 0.0)), driver, norms=norms)


@typed
def directions(blocks: Iterable[Any]) -> Directions:
    """Return the singular values of vectors given in blocks of rows, raw and with their mean subtracted.

    They come from Gram matrices in float64 (`VectorGram`), which resolve values above 1.2 · 10⁻⁷ of the largest, and
    are certified: Σσ² equals the sum of the squared entries. Ranks use the roundoff of float32, which is coarser.

    Args:
        blocks: (n, d) arrays or tensors of real numbers; tensors stay on their device.

    Raises:
        MatrixError: without any vectors, or for numbers that are not finite.
    """
    method: VectorGram | None = None
    stream: Stream | None = None
    units, count, zeros = torch.zeros(()), 0, 0
    with full_precision():
        for block in blocks:
            rows = exact(_tensor(block))
            if rows.ndim != 2 or (method and rows.shape[1] != method.columns):
                raise MatrixError(f"vectors come in blocks of one shape (n, d), not {tuple(rows.shape)}")
            lengths = torch.linalg.vector_norm(rows, dim=1)
            if not bool(lengths.isfinite().all()):
                raise MatrixError("the vectors hold NaN or infinity, or numbers too large to be squared")
            method = method or VectorGram(rows.shape[1], arithmetic=arithmetic_for(rows.device))
            stream = extended(method, stream or started(method), rows)
            units = units.to(rows) + torch.where(lengths > 0, 1 / lengths, 0.0) @ rows
            count, zeros = count + len(rows), zeros + int((lengths == 0).sum())
        if not count or method is None or stream is None:
            raise MatrixError("directions need vectors: give at least one block of rows")
        squares = stream.state[0].diagonal()
        spread = float((squares.max() / squares[squares > 0].min()).sqrt()) if bool((squares > 0).any()) else 1.0
        spectrum = finish(method, stream)
        some = count - zeros
        cosine = float((units @ units - some) / (some * (some - 1))) if some > 1 else None
    shape, (values, centered) = (count, method.columns), (spectrum.values, spectrum.centered)
    return Directions(
        shape,
        values,
        centered,
        numerical_rank(values, shape=shape, eps="float32"),
        # Subtracting the mean keeps the roundoff of the raw squares, so values below it cannot be resolved.
        numerical_rank(centered, shape=shape, eps="float32", floor=tolerance(values[0], shape, EPS["float32"])),
        cosine,
        zeros,
        spectrum.frobenius_relative_error,
        spread,
    )


@dataclass(frozen=True, eq=False, repr=False)
class HeadStatistics(Result, kind="head-statistics"):
    """Statistics of an output layer that do not need its T × M matrix."""

    weight: Directions
    """Statistics of the output embeddings W, (M, d); row-centring log P subtracts their mean."""
    hidden: Directions | None
    """Statistics of the hidden states H, (T, d), if they were given."""
    bias_norm: float | None
    """‖b‖ of the output bias."""

    def quantities(self) -> Iterator[Quantity]:
        """Yield those of W and of H, and the norm of the bias."""
        for name, each in (("W", self.weight), ("H", self.hidden)):
            for quantity in each.quantities() if each else ():
                yield replace(quantity, key="", label=quantity.label and f"{name}: {quantity.label}")
        if self.bias_norm is not None:
            yield Quantity("bias_norm", self.bias_norm, "norm of the bias", ANSWER | TABLE)

    def panels(self) -> Drawings:
        """Return a panel of the singular values of W, and one of those of H where it was given."""
        return [*self.weight.panels("W"), *(self.hidden.panels("H") if self.hidden else ())]


def head_statistics(weight: Any, bias: Any = None, hidden: Any = None) -> HeadStatistics:
    """Return ranks, entropy and stable rank, energy of the top directions and mean cosine of an output layer.

    W takes 2 M d² operations and H takes 2 T d²: milliseconds on a GPU, so this can run while a model trains.

    Args:
        weight: W, (M, d), an array or a tensor on any device.
        bias: b, (M,).
        hidden: H, (T, d) or (…, d).

    Raises:
        MatrixError: for W or H of another shape, or numbers that are not finite.

    Example:
        >>> import numpy as np
        >>> found = head_statistics(np.random.default_rng(0).standard_normal((100, 8)))
        >>> found.weight.rank.value, found.weight.rank_centered.value
        (8, 8)
    """
    W = _tensor(weight)
    if W.ndim != 2:
        raise MatrixError(f"W must have the shape (M, d), not {tuple(W.shape)}")
    norm = None
    if bias is not None:
        b = _tensor(bias)
        if b.shape != W.shape[:1]:
            raise MatrixError(f"the bias must have the shape ({len(W)},), not {tuple(b.shape)}")
        norm = float(exact(b).norm())
    states = None
    if hidden is not None:
        H = _tensor(hidden)
        if H.shape[-1:] != W.shape[1:]:
            raise MatrixError(f"hidden states must have the size d = {W.shape[1]:,} of W, not shape {tuple(H.shape)}")
        states = directions(H.reshape(-1, H.shape[-1]).split(ROWS))
    return HeadStatistics(directions(W.split(ROWS)), states, norm)


def _tensor(values: Any) -> Tensor:
    """Return an array or a tensor, which stays on its device, as a tensor of real numbers."""
    if isinstance(values, Tensor) and not values.is_complex():
        check_dense(values, "the tensor")
        return values.detach()
    return torch.from_numpy(np.array(as_array(values)))
