"""The share of the logits' gradient that the output layer passes on to the hidden states."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad

from ..core.devices import exact, sum_type
from ..core.full_precision import full_precision
from ..core.options import GradientOptions
from ..core.progress import Progress, reporting
from ..errors import Function, MatrixError, Sentence, SourceError
from ..language_models import ModelOnText
from ..results.base import Drawings, Result
from ..results.quantity import ANSWER, TABLE, Quantity
from ..sources import Source
from ..sources.measurement import measurement, opened
from ..spectrum import RankEstimate, SpectrumSettings, matrix_spectrum, numerical_rank
from ..spectrum.centered import orthonormal_basis
from ..spectrum.noise import evenly

JACOBIAN_BYTES = 64 << 20
"""Size of one block of directions of a Jacobian."""
BATCH = 256
"""Largest number of contexts whose gradients are kept to determine their rank."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Band:
    """The contexts whose targets are about equally frequent."""

    least: int
    """Smallest frequency of a target in this band."""
    most: int
    """Largest frequency; bands are decades."""
    contexts: int
    kept: float
    """Share of the gradient's norm over these contexts, as in `GradientReport`."""
    lost: float


@dataclass(frozen=True, repr=False)
class GradientReport(Result, kind="gradient"):
    """The share of ‖G‖_F that survives backpropagation through the output layer."""

    source: Mapping[str, Any] = field(compare=False)
    """What was measured: path, kind, head, corpus, split."""
    contexts: int
    """T."""
    vocab: int
    """M."""
    method: str
    """``"weight"`` if G is projected onto the centred columns of W, ``"jacobian"`` if it is projected onto the centred
    columns of ∂ log P / ∂h at each context's hidden state h, the input of the output layer."""
    directions: int
    """Dimension of the subspace: the rank of the centred W, or the largest rank of the centred Jacobians."""
    sampled: int | None
    """Number of contexts that were used, or ``None`` for all."""
    norm: float
    """‖G‖_F over the contexts used."""
    kept: float
    """‖ΠG‖_F / ‖G‖_F, of all contexts together."""
    lost: float
    """1 − kept."""
    kept_energy: float
    """‖ΠG‖²_F / ‖G‖²_F."""
    outside: float
    """‖G − ΠG‖_F / ‖G‖_F = √(1 − kept_energy), the norm of the part that is lost."""
    random_kept: float
    """√(directions / M): the root mean square of ‖Πx‖ / ‖x‖ for a direction x drawn uniformly from R^M."""
    random_kept_energy: float
    """directions / M, the mean of ‖Πx‖² / ‖x‖²."""
    random_outside: float
    """√(1 − directions / M), the norm of x − Πx over that of x."""
    ratio: float
    """kept / random_kept."""
    mean_kept: float
    """Mean over the contexts of ‖Πg‖ / ‖g‖, which counts each context alike."""
    mean_kept_energy: float
    """Mean over the contexts of ‖Πg‖² / ‖g‖²."""
    mean_outside: float
    """Mean over the contexts of ‖g − Πg‖ / ‖g‖."""
    batch: int
    """Number of contexts in ``batch_rank``: the first of those used."""
    batch_rank: RankEstimate
    """Rank of these contexts' G, (batch, M), at the roundoff of float32; at most ``directions`` of it pass."""
    bands: tuple[Band, ...]
    """Contexts grouped by the frequency of their target, rarest first."""
    seconds: float = field(default=0.0, compare=False)
    """Wall-clock time of the measurement."""

    def quantities(self) -> Iterator[Quantity]:
        """Yield the share that is kept beside that of a random direction, and how it was measured."""
        used = f"{self.sampled:,} of {self.contexts:,} contexts" if self.sampled else f"{self.contexts:,} contexts"
        passed = f"{_percent(self.kept)} of the gradient's norm reaches the hidden states"
        jacobian = "the columns of ∂ log P / ∂h at each context's hidden state h"
        onto = "the columns of W" if self.method == "weight" else jacobian
        beside = f", {self.ratio:.2f} times as much as of a random direction"
        verdict = passed + (beside if self.directions else ": all tokens have the same logits")
        shown = ANSWER | TABLE
        chance = _three(self.random_kept, self.random_kept_energy, self.random_outside)
        mean = _three(self.mean_kept, self.mean_kept_energy, self.mean_outside)
        passing = f"{self.batch_rank} in {self.batch:,} contexts; {self.directions:,} can pass"
        yield Quantity("verdict", verdict, "verdict")
        yield Quantity("kept", self.kept, "gradient kept", shown, _three(self.kept, self.kept_energy, self.outside))
        yield Quantity("random_kept", self.random_kept, "random direction", shown, chance)
        yield Quantity("mean_kept", self.mean_kept, "mean over contexts", shown, mean)
        yield Quantity("batch_rank", self.batch_rank, "rank of the gradient", text=passing)
        yield Quantity("", None, "matrix", text=f"{used} × {self.vocab:,} tokens")
        yield Quantity("", None, "projection", text=f"onto {onto}, less their means: {self.directions:,} directions")
        for band in self.bands:
            label = f"targets that occur {band.least:,} to {band.most:,} times"
            yield Quantity("", None, label, text=f"{_percent(band.lost)} lost ({band.contexts:,} contexts)")
        after = Function("need"), " measures how many of these dimensions a text needs"
        if self.method == "jacobian":  # a mixture, perhaps, which has no single set of logits
            after = Function("rank"), " counts the dimensions of the log-probabilities"
        yield Quantity("next", Sentence(*after), "next")

    def panels(self) -> Drawings:
        """Return a panel of the share that is kept for targets of each frequency, beside that of a random direction."""
        from ..results.plotting.measures import draw_kept

        bands = [(f"{band.least:,} to {band.most:,}", band.kept) for band in self.bands]
        return [partial(draw_kept, bands=bands, whole=self.kept, chance=self.random_kept)]


def _three(kept: float, energy: float, outside: float) -> str:
    return f"{_percent(kept)} of its norm, {_percent(energy)} of its squared norm; outside {_percent(outside)}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


@measurement(GradientOptions, opens=opened)
def gradient(source: Source, **options: Unpack[GradientOptions]) -> GradientReport:
    r"""Measure the share of the loss gradient at the logits that backpropagation passes on to the hidden states.

    The loss −log P(y) has the gradient G = P − onehot(y) at the logits, (T, M), and G W at the hidden states, the input
    of the output layer (after any final norm). The rows of G sum to zero, so G W = G C with C = (I − 11ᵀ/M) W, whose
    columns have mean zero. The part of G orthogonal to these columns is lost. With Q an orthonormal basis of the
    columns of C,

    .. math:: \frac{\|G Q\|_F}{\|G\|_F}, \quad \frac{\|G - G Q Q^⊤\|_F}{\|G\|_F}, \quad Q = C R^{-1}, \quad R^⊤R = C^⊤C

    R is the Cholesky factor; if C does not have full rank in float64, the eigenvectors of CᵀC replace it. G is computed
    block by block. If the output layer is not log-linear, Q spans the columns of (I − 11ᵀ/M) J instead, where
    J = ∂ log P / ∂h is the Jacobian at each context's hidden state h. For a softmax this is the same space, because
    J = (I − 1pᵀ) W differs from W by multiples of 1. If hidden states are smaller than d, they reach only a part of
    W's column space, so J is also used for a log-linear output layer.

    A direction drawn uniformly from R^M keeps r/M of its squared norm on average, with r the number of columns of Q.
    For uniform P and every token once as the target, G = 11ᵀ/M − I keeps r/(M − 1) exactly, whatever W is.

    Args:
        source: a model as for `rank`, with known targets.
        options: how the source is opened, and at how many evenly spaced contexts the Jacobian is computed, see
            `GradientOptions`.

    Raises:
        SourceError: for a matrix, which has no output layer.
        ConfigurationError: for a sample below 1.

    References:
        Godey and Artzi 2026, *Lost in Backpropagation: The LM Head is a Gradient Bottleneck* (arXiv 2603.10145).
    """
    source = source.scored()
    targets = source.targets
    if not isinstance(source, ModelOnText):
        raise SourceError(
            f"the gradient needs a model, and {source.description['path']} is only its log-probabilities: give the "
            "run, the Hugging Face model, or the output layer with hidden states and targets"
        )
    if targets is None:
        raise SourceError(
            f"{source.description['path']} does not say which token came after each context, so the loss has no "
            "gradient: give targets in Python, or a file of hidden states that also holds token_ids"
        )
    (first,) = source.hidden([range(1)])
    factors, used = source.linear(first), np.arange(len(targets))
    # Context vectors that are larger than the hidden states fill a part of the columns of W alone.
    weight = None if factors is None or factors.weight.shape[1] > first.shape[1] else factors.weight
    if weight is None:
        used = evenly(len(targets), options["sample"])
    with full_precision():
        finite = source.head.log_prob(first)[0].isfinite()
    possible = slice(None) if bool(finite.all()) else finite  # no gradient reaches h through tokens of probability 0
    columns, ids = None if weight is None else weight[possible], torch.from_numpy(targets).to(finite.device)
    progress = reporting(options.get("progress", False))
    whole, projected, directions, batch = _project(source, columns, possible, ids, used, progress)
    kept, random_energy = _kept(whole, projected), directions / source.shape[1]
    sigma = matrix_spectrum(batch.cpu().numpy(), SpectrumSettings(method="dense", device="cpu")).values
    shares = np.minimum(1.0, projected[whole > 0] / whole[whole > 0]) if whole.any() else np.ones(1)
    return GradientReport(
        source=source.description,
        contexts=source.shape[0],
        vocab=source.shape[1],
        method="jacobian" if weight is None else "weight",
        directions=directions,
        sampled=None if len(used) == len(targets) else len(used),
        norm=math.sqrt(whole.sum()),
        kept=kept,
        lost=1 - kept,
        kept_energy=kept**2,
        outside=math.sqrt(1 - kept**2),
        random_kept=math.sqrt(random_energy),
        random_kept_energy=random_energy,
        random_outside=math.sqrt(1 - random_energy),
        ratio=kept / math.sqrt(random_energy) if directions else 1.0,
        mean_kept=float(np.sqrt(shares).mean()),
        mean_kept_energy=float(shares.mean()),
        mean_outside=float(np.sqrt(1 - shares).mean()),
        batch=len(batch),
        batch_rank=numerical_rank(sigma, shape=(len(batch), source.shape[1]), eps="float32"),
        bands=tuple(_bands(targets, used, whole, projected)),
    )


def _project(
    source: ModelOnText,
    weight: Tensor | None,
    possible: Tensor | slice,
    targets: Tensor,
    used: NDArray[np.int64],
    progress: Progress,
) -> tuple[Floats, Floats, int, Tensor]:
    """Project the gradients of possible tokens in blocks onto their W, or each by itself onto its Jacobian.

    Returns:
        ‖g‖² and ‖Πg‖² of the contexts used, the largest dimension projected onto, and G of the first `BATCH` of them.
    """
    log_prob, largest, squares = source.head.log_prob, 0, []
    batch: list[Tensor] = []
    ranges = source.ranges() if weight is not None else [range(row, row + 1) for row in used.tolist()]
    basis = torch.empty(0) if weight is None else orthonormal_basis(weight, scaled=True)[0]
    with progress.bar("projecting gradients", len(used), "contexts") as bar:
        for each, hidden in zip(ranges, source.hidden(ranges), strict=True):
            if weight is None:
                basis = orthonormal_basis(jacobian(log_prob, hidden)[possible])[0]
            with full_precision():
                residue = log_prob(hidden).exp_()  # P − onehot, whose entry of a likely target would cancel
                own = torch.arange(len(each)), targets[each.start : each.stop]
                residue[own] = 0
                residue[own] = -residue.sum(1, dtype=sum_type(residue.device)).to(residue)
                pair = residue, residue[:, possible].to(basis) @ basis
                squares.append(torch.stack([exact(rows).square().sum(1).cpu() for rows in pair]))
            batch.append(residue[: BATCH - sum(map(len, batch))].clone())
            largest = max(largest, basis.shape[1])
            bar.advance(len(hidden))
    whole, projected = torch.cat(squares, 1).numpy()
    return whole, projected, largest, torch.cat(batch)


def _kept(whole: Floats, projected: Floats) -> float:
    """Return ‖ΠG‖ / ‖G‖; a model that is certain of every target has no gradient to lose."""
    total = float(whole.sum())
    return min(1.0, math.sqrt(float(projected.sum()) / total)) if total else 1.0


def jacobian(log_prob: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
    """Return ∂ log P / ∂h at one hidden state (1, hidden_size): (M, hidden_size).

    Forward mode differentiates along batches of directions of h; if a function has no forward rule, backward mode
    differentiates batches of tokens.
    """
    size, M = hidden.shape[1], log_prob(hidden).shape[1]
    at_once = max(1, JACOBIAN_BYTES // (hidden.element_size() * M))
    try:
        blocks = [_forward(log_prob, hidden, each) for each in torch.eye(size).to(hidden).split(at_once)]
        return torch.cat(blocks).T.contiguous()
    except (NotImplementedError, RuntimeError) as error:
        if "jvp" not in str(error) and "forward" not in str(error):
            raise
        return torch.cat([_backward(log_prob, hidden, ids) for ids in torch.arange(M).split(at_once)])


def _forward(log_prob: Callable[[Tensor], Tensor], hidden: Tensor, directions: Tensor) -> Tensor:
    with full_precision(), forward_ad.dual_level():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch's own use of torch.jit, at the first call
            dual = forward_ad.make_dual(hidden.expand(len(directions), -1).clone(), directions)
        tangent = forward_ad.unpack_dual(log_prob(dual)).tangent
        if tangent is None:
            raise MatrixError("the output layer's log-probabilities do not depend on its hidden states")
        return tangent.detach()


def _backward(log_prob: Callable[[Tensor], Tensor], hidden: Tensor, tokens: Tensor) -> Tensor:
    with full_precision(), torch.enable_grad():
        copies = hidden.expand(len(tokens), -1).clone().requires_grad_()
        chosen = log_prob(copies).gather(1, tokens.to(hidden.device).unsqueeze(1))
        return torch.autograd.grad(chosen.sum(), copies)[0]


def _bands(targets: NDArray[np.int64], used: NDArray[np.int64], whole: Floats, projected: Floats) -> Iterator[Band]:
    times = np.bincount(targets)[targets]
    for decade in range(len(str(times.max()))):
        least, most = 10**decade, 10 ** (decade + 1) - 1
        which = (times[used] >= least) & (times[used] <= most)
        if which.any():
            kept = _kept(whole[which], projected[which])
            yield Band(least, most, int(which.sum()), kept, 1 - kept)
