"""Rows of the output embeddings that stand out: zero, equal, never trained, or of an unusual norm."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betainccinv, ndtri
from torch import Tensor
from torch.nn.functional import normalize

from ..core.full_precision import full_precision
from ..spectrum import EPS

ROWS = 4096
"""Rows that are in memory in float64 at once."""
LEVEL = 0.05
"""Probability that a test names any row of a vocabulary in which none stands out: each of the M rows is tested at
LEVEL / M (Bonferroni)."""
GROUPS = 64
"""Most groups of equal rows, the largest first, that other rows are compared with."""
APART = 9
"""Fewest rows at one end of the norms that the widest gap can set apart. Spacings from an end are E_k / k with E_k
exponential (Rényi 1953), so the widest is the 9th or a later one, at either end, with less than LEVEL."""
MOST = 0.1
"""Largest share of a vocabulary that W alone calls unusual or never trained: ten times the share of about 1 % up to
which Land and Bartolo (2024) find such tokens. A larger group is a property of W."""
STEPS, SHARED = 256, 32
"""Most steps of the grid of a row that was quantized, to 8 bits or fewer, and the first entries that are looked at: in
common formats 32 or more share a scale."""
PRODUCTS = 5e10
"""Multiplications spent on a sample of tokens that may be the argmax: seconds."""

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HeadRows:
    """Ids of the rows of W that stand out; see `head_rows`."""

    zero: tuple[int, ...]
    """Rows of zeros."""
    duplicates: tuple[tuple[int, ...], ...]
    """Groups of equal rows, those of zeros left out. With equal biases none of a group is ever strictly the argmax."""
    quantized: bool
    """Whether W was quantized: rows that are equal since then need not have been equal when W was trained."""
    equal: tuple[int, ...]
    """Rows of these groups, and rows equal to them up to the roundoff of W's type; all but one of a group were never
    trained, but in a quantized W."""
    alike: tuple[int, ...]
    """Never trained: rows alike the rows that were started from."""
    initial: tuple[int, ...]
    """Never trained: rows like random ones of the size of the rows that were started from."""
    known_unused: tuple[int, ...]
    """Rows known to be unused: those beyond the tokenizer's tokens, and tokens that it names reserved or unused."""
    cosines: tuple[float, ...]
    """Cosine of each row of ``alike`` to the mean of the rows that were started from, all less the mean of the others
    (Land and Bartolo 2024)."""
    median_cosine: float | None
    """Median cosine of the rows that were started from, each to the mean of the others; ``None`` without such rows."""
    outliers: tuple[int, ...]
    """Other rows whose norm stands out."""
    groups: tuple[tuple[int, float], ...]
    """Number and median norm of rows that stand out together and are too many (`MOST`) to be unusual."""
    median_norm: float
    """Median norm of the rows."""
    mean_norm: float
    """Norm ‖μ‖ of the mean row; the mean logit of a context is h·μ."""
    tried: int
    """Number of tokens, evenly spaced, whose centred row was tried as a context vector: none for a mixture, which has
    no single set of logits."""
    argmaxable: int
    """Number of those that it makes the argmax, by more than roundoff."""

    @property
    def never_trained(self) -> tuple[int, ...]:
        """Rows that look never trained, for any of the three reasons."""
        return tuple(sorted({*self.copies, *self.alike, *self.initial}))

    @property
    def copies(self) -> tuple[int, ...]:
        """Equal rows but for the first of each group, which may have been trained and then copied."""
        firsts = {ids[0] for ids in self.duplicates}
        return () if self.quantized else tuple(each for each in self.equal if each not in firsts)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {"never_trained": list(self.never_trained), **asdict(self)}


def head_rows(
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    known_unused: Sequence[int] = (),
    roundoff: float = EPS["float32"],
    quantized: bool = False,
) -> HeadRows:
    r"""Find the rows of W, (M, d), that stand out; in blocks, in float64.

    **Norms.** The cube root of a squared norm is close to normal for Gaussian rows (Wilson and Hilferty 1931). A norm
    stands out if it is further from the median than M draws of a normal variable get, with probability 1 − `LEVEL`. The
    standard deviation on either side is that of the central half or of the central 95 % of the rows, the larger one,
    without the rows, at least `APART`, that the widest gap between the norms on this side sets apart. More rows than a
    share `MOST` are a group of another size, and neither unusual nor, without rows known to be unused, never trained.

    **Never trained, equal.** Equal rows have equal logits and no bias tells them apart, so their gradients differ as
    soon as one of their tokens is a target: rows that are equal were not trained since they became so, though the first
    of them may have been before, if the others were copied from it. Quantization makes rows equal that were only close:
    of a quantized W they count as equal, and only the W before it could prove more.

    **Never trained, alike.** Land and Bartolo (2024, arXiv 2405.05417) compare rows with the mean u of rows known to be
    unused, less the mean of W. The rows to start from are those, or, if fewer than two are known, the rows of unusually
    small norm. They are alike if their median cosine to u, each left out of u in turn, is above the largest that M
    random directions reach (the square of a cosine is a Beta(½, (d − 1)/2) variable). The squared tangent of the angle
    between u and u with Gaussian noise is a multiple of a χ² variable of d degrees of freedom. So a row counts whose
    squared tangent is not above those of M such rows with the median of the rows to start from.

    **Never trained, at initialization.** If the rows to start from are not alike, as random rows are not, a row counts
    whose squared norm is that of M Gaussian rows with their median, and whose cosine to the mean of W is that of a
    random direction.

    Args:
        weight: W, (M, d).
        bias: b, (M,).
        known_unused: ids of rows that are known to be unused.
        roundoff: relative roundoff of W's type in its file, up to which rows are equal.
        quantized: whether W's type is a quantized one; a W whose equal rows lie on a grid of 8 bits was quantized, too.
    """
    weight, (M, d) = weight.cpu(), weight.shape
    norms, total, groups = _sums(weight)
    zero, mean, limit = norms == 0, total / M, float(-ndtri(LEVEL / (2 * M)))
    scores = _scores(norms, ~zero)
    sizes = [side for side in (scores < -limit, scores > limit) if side.sum() > MOST * M]
    for side in sizes:
        scores[side] = 0
    repeated = [ids for ids in groups if len(ids) > 1 and not zero[ids[0]]]
    known = np.array(sorted({*known_unused}), dtype=np.int64)
    start = known[~zero[known]]
    if len(start) < 2:
        start = np.setdiff1d(np.flatnonzero(scores < -limit), np.concatenate([[-1], *repeated]))
    equal, alike, initial = (np.zeros(M, dtype=bool) for _ in range(3))
    cosines, middle = np.zeros(M), None
    equal[[*chain(*repeated)]] = True
    if repeated and d > 1:
        firsts = torch.tensor([ids[0] for ids in sorted(repeated, key=len, reverse=True)[:GROUPS]])
        (nearest,) = _cosines(weight, mean, [weight[firsts].double() - mean])
        equal |= _tangents(nearest) <= max(2 * roundoff, EPS["float32"]) ** (2 / 3)
    if 2 <= len(start) < M:
        rows = weight[torch.from_numpy(start)].double()
        others = (total - rows.sum(0)) / (M - len(start))
        cosines, to_others = _cosines(weight, others, [rows.mean(0)[None] - others], others[None])
        rest = (len(rows) * rows.mean(0) - rows) / (len(rows) - 1)
        own = (normalize(rows - others) * normalize(rest - others)).sum(1).numpy()
        middle = float(np.median(own))
        if middle > (math.sqrt(float(betainccinv(0.5, (d - 1) / 2, LEVEL / M))) if d > 1 else 1.0):
            alike = (_tangents(cosines) <= _interval(_tangents(own), d, limit)[1]) & ~zero
        else:
            low, high = _interval(norms[start] ** (2 / 3), d, limit)
            initial = (norms ** (2 / 3) >= low) & (norms ** (2 / 3) <= high)
            initial &= _tangents(abs(to_others)) >= np.cbrt(1 / betainccinv(0.5, (d - 1) / 2, LEVEL / M) - 1)
            initial &= initial.sum() > 1
        for same in (alike, initial):
            if len(known) < 2 and same.sum() > MOST * M:
                sizes.append(same.copy())
                same[:] = False
    odd = (abs(scores) > limit) & ~(zero | equal | alike | initial)
    tried, argmaxable = _tried(weight, bias, mean, float(norms.max()))
    ids = [tuple(np.flatnonzero(mask).tolist()) for mask in (zero, equal, alike, initial, odd)]
    return HeadRows(
        zero=ids[0],
        duplicates=tuple(map(tuple, repeated)),
        quantized=quantized or _on_a_grid(weight[equal]),
        equal=ids[1],
        alike=ids[2],
        initial=ids[3],
        known_unused=tuple(known.tolist()),
        cosines=tuple(cosines[alike].tolist()),
        median_cosine=middle,
        outliers=ids[4],
        groups=tuple((int(side.sum()), float(np.median(norms[side]))) for side in sizes if side.sum() < (1 - MOST) * M),
        median_norm=float(np.median(norms)),
        mean_norm=float(mean.norm()),
        tried=tried,
        argmaxable=argmaxable,
    )


def _blocks(weight: Tensor) -> Iterator[tuple[int, Tensor]]:
    return ((start, weight[start : start + ROWS].double()) for start in range(0, len(weight), ROWS))


def _sums(weight: Tensor) -> tuple[Floats, Tensor, list[list[int]]]:
    """Return the rows' norms, their sum, and the ids of equal rows together."""
    norms, total = np.empty(len(weight)), torch.zeros(weight.shape[1], dtype=torch.float64)
    groups: dict[bytes, list[int]] = defaultdict(list)
    for start, rows in _blocks(weight):
        norms[start : start + len(rows)] = torch.linalg.vector_norm(rows, dim=1).numpy()
        total += rows.sum(0)
        for place, row in enumerate(np.ascontiguousarray(rows.numpy() + 0.0)):  # −0 is 0
            groups[hashlib.blake2b(row.data, digest_size=16).digest()].append(start + place)
    return norms, total, [*groups.values()]


def _on_a_grid(rows: Tensor) -> bool:
    """Return whether most rows hold whole multiples of one number, as after a quantization to 8 bits."""
    parts = rows[:, :SHARED].double().abs()
    gaps = torch.cat([torch.zeros(len(parts), 1).double(), parts], 1).sort(1).values.diff(dim=1)
    step = torch.where(gaps > 1e-3 * parts.amax(1, keepdim=True) / STEPS, gaps, torch.inf).amin(1, keepdim=True)
    steps = parts / step
    whole = ((steps - steps.round()).abs() < 0.01).all(1) & (steps.amax(1) < STEPS)
    return bool(2 * whole.sum() > len(rows))


def _scores(norms: Floats, counted: Mask) -> Floats:
    """Return how many standard deviations each norm's cube root of the square is from the median of those counted."""
    if not counted.any():
        return np.zeros_like(norms)
    roots = norms ** (2 / 3)
    ordered, half = np.sort(roots[counted]), int(counted.sum()) // 2
    gaps = np.diff(ordered, append=ordered[-1])
    first, last = int(gaps[:half].argmax()) + 1 if half else 0, half + int(gaps[half:].argmax()) + 1
    ordered = ordered[first if first >= APART else 0 : last if len(gaps) - last >= APART else None]
    middle, places = np.median(ordered), np.array([0.025, 0.25, 0.75, 0.975])
    away = roots - middle
    below, above = (abs(np.quantile(ordered - middle, places) / ndtri(places))).reshape(2, 2).max(1)
    least = EPS["float32"] * float(middle)
    scores: Floats = away / np.maximum(np.where(away < 0, below, above), least)
    return np.where(counted, scores, 0.0)


def _tangents(cosines: Floats) -> Floats:
    """Return the cube roots of the angles' squared tangents; infinite for an angle of 90° or more."""
    with np.errstate(divide="ignore"):
        return np.where(cosines > 0, np.cbrt(np.maximum(cosines, 0.0) ** -2.0 - 1), np.inf)


def _interval(roots: Floats, d: int, limit: float) -> tuple[float, float]:
    """Return the interval of ``limit`` deviations of the cube root of a χ² variable of d degrees with this median.

    The deviation is the expected one or, if that is larger, the observed one; angles below 10⁻⁷ are zero.
    """
    width, middle = 2 / (9 * d), float(np.median(roots))
    finite = roots[np.isfinite(roots)]
    observed = 1.4826 * float(np.median(abs(finite - middle)))
    reach = limit * max(math.sqrt(width) * middle / (1 - width), observed) + EPS["float32"] ** (2 / 3)
    return middle - reach, middle + reach


def _cosines(weight: Tensor, origin: Tensor, targets: Sequence[Tensor], *plain: Tensor) -> list[Floats]:
    """Return each row's largest cosine to targets (n, d), less an origin, and to others without it."""
    units = [(normalize(each), origin) for each in targets] + [(normalize(each), 0 * origin) for each in plain]
    with full_precision():
        found = [[(normalize(rows - zero) @ unit.T).amax(1) for unit, zero in units] for _, rows in _blocks(weight)]
    return [torch.cat(each).numpy() for each in zip(*found, strict=True)]


def _tried(weight: Tensor, bias: Tensor | None, mean: Tensor, largest: float) -> tuple[int, int]:
    """Try the centred rows of evenly spaced tokens as context vectors; return how many, and how many are the argmax."""
    M, d = weight.shape
    tokens = torch.linspace(0, M - 1, min(M, max(1, int(PRODUCTS / (M * d))))).long()
    contexts = weight[tokens].double().cpu() - mean
    own, best = torch.zeros(len(tokens)).double(), torch.full((len(tokens),), -torch.inf).double()
    with full_precision():
        for start, rows in _blocks(weight):
            logits = contexts @ rows.T
            if bias is not None:
                logits += bias[start : start + len(rows)].double().cpu()
            inside = torch.nonzero((tokens >= start) & (tokens < start + len(rows))).squeeze(1)
            own[inside] = logits[inside, tokens[inside] - start]
            logits[inside, tokens[inside] - start] = -torch.inf
            best = torch.maximum(best, logits.amax(1))
    size = largest * contexts.norm(dim=1)
    if bias is not None:
        size = size + float(bias[bias.isfinite()].abs().max())
    proved = own - best > 2 * (d + 2) * EPS["float64"] * size
    return len(tokens), int(proved.sum())
