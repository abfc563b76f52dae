"""A lower bound on the rank of log-probabilities of which a part is unseen, from a block that is seen as a whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.progress import Progress
from ..errors import MatrixError
from ..results.quantity import Quantity
from ..sources import MatrixSource, PartialSource
from ..spectrum import EPS, Noise, Precision, RankEstimate, SpectrumSettings, numerical_rank
from ..spectrum.judge import DROP
from ..spectrum.rules import NOISE_FACTOR
from .computing import compute_spectrum
from .report import RankReport, report_of
from .verdict import Verdict

POWER = 16
"""Power of the share of contexts that show a token. On 1,024 contexts of a text SmolLM2's block had 672 contexts, and
430 with all tokens alike."""
MOST = 8192
"""Most contexts, and most tokens, of a block."""
LOGITS = 32.0
"""Size that logits in bfloat16 may have, of which log-probabilities show only the differences: theirs are below 64."""
FEWEST_LEFT = 4
"""Directions beyond the rank that show the noise of a block: the last one alone may be small by chance."""


def full_block(source: PartialSource, progress: Progress) -> tuple[NDArray[np.float64], float]:
    """Return a large block without an unseen entry, (T', M'), and the Frobenius norm of its entries' errors.

    Contexts are taken in the order of how many tokens they show, and the tokens that all of them show are kept, until
    the smaller side of the block shrinks. A token counts with a high power of the share of contexts that show it, so
    that first come the contexts that lack none of those tokens.

    Raises:
        MatrixError: where two contexts do not share three tokens.
    """
    shares, scores = np.zeros(source.shape[1]), []
    with progress.bar("counting seen tokens", 2 * source.shape[0], "contexts") as bar:
        for part in source.parts():
            shares += part.seen.sum(0) / source.shape[0]
            bar.advance(len(part.seen))
        for part in source.parts():
            scores.append(part.seen @ shares**POWER)
            bar.advance(len(part.seen))
    order = np.argsort(-np.concatenate(scores), kind="stable")[:MOST].tolist()
    common = np.ones(source.shape[1], dtype=bool)
    size, rows, tokens = 0, 0, common
    for number, row in enumerate(order, 1):
        (part,) = source.parts([range(row, row + 1)])
        common = common & part.seen[0]
        limit = int(common.sum()) - 1  # of a row-centred rank
        if limit < size:
            break
        if (smaller := min(number, limit)) >= size:
            size, rows, tokens = smaller, number, common
    if size < 2:
        raise MatrixError(
            f"no two contexts of {source.description['path']} share three tokens whose probabilities are seen, so no "
            "rank can be proved: give contexts of flatter distributions, or more tokens of each"
        )
    columns = np.flatnonzero(tokens)[:MOST]
    parts = [next(source.parts([range(row, row + 1)])) for row in order[:rows]]
    errors = np.concatenate([np.broadcast_to(part.error, part.seen.shape)[:, columns] for part in parts])
    log_probs = np.concatenate([part.log_probs[:, columns] for part in parts])
    return log_probs, float(np.linalg.norm(errors))


def partial_rank(source: PartialSource, eps: Precision, how: SpectrumSettings) -> RankReport:
    r"""Return what a full block proves of the ranks: each is at least the number of σ_i above :math:`\|E\|_F`.

    Errors E of the entries change no singular value by more than their norm (Weyl), and row-centring within the block
    removes what row-centring the whole matrix removes. No σ counts below twice the norm of the noise that the block
    itself shows. Unless the block shows where the rank ends, that noise may hide in it, and none counts below twice the
    norm of what rounding the logits to bfloat16 would add, because rounded logits have a rank of their own.
    """
    log_probs, error = full_block(source, how.progress)
    matrix = MatrixSource(log_probs, kind="matrix", path=str(source.description["path"]))
    matrix.prepare()
    spectrum, why = compute_spectrum(matrix, eps.value, how)
    grid = Noise(source.step / math.sqrt(12), is_coarse=True)
    noise, visible = (each.noise_norm(spectrum.shape) for each in (replace(eps, noise=grid), matrix.precision))
    size = max(LOGITS, float(np.linalg.norm(log_probs)) / math.sqrt(log_probs.size))
    hidden = EPS["bfloat16"] * size / math.sqrt(12) * sum(map(math.sqrt, spectrum.shape))

    def above(noise: float) -> RankEstimate:
        return numerical_rank(
            spectrum.centered,
            shape=spectrum.shape,
            eps=eps.value,
            floor=max(error, spectrum.centered_error, NOISE_FACTOR * noise),
            residual=spectrum.residual,
        )

    stored, proved = above(noise), above(max(noise, visible))
    different, tokens = (len(np.unique(log_probs.round(3), axis=axis)) for axis in (0, 1))  # copies end a spectrum too
    ends = (proved.gap or 0.0) >= DROP and proved.value + FEWEST_LEFT <= min(different, tokens - 1)
    if not ends:
        proved = above(max(noise, visible, hidden))
    T, M = source.shape
    high = min(T, M - 1)
    rank = replace(proved, low=proved.value, high=high, at_least=True, doubt=source.doubt)
    rows, columns = spectrum.shape
    values = {
        "contexts": rows,
        "tokens": columns,
        "of_contexts": T,
        "of_tokens": M,
        "error_norm": error,
        "noise_norm": noise,
        "visible_noise_norm": visible,
        "rank_if_exact": stored.value,
        "is_too_small": not ends,
    }
    text = "{contexts:,} of {of_contexts:,} contexts × {tokens:,} of {of_tokens:,} tokens, all seen"
    noise_text = "the file's rounding adds at most {error_norm:.3g} to a σ"
    noise_text += ", and noise of norm {noise_norm:.3g} is expected" if noise else ""
    return report_of(
        spectrum,
        rank,
        rank,
        said=_verdict(rank, values),
        source=source.description,
        eps=replace(eps, noise=grid),
        rank_by_rule={"press": rank.value},
        bound=asdict(source.bound),
        embedding_size=None,
        method_why=why,
        more=(
            Quantity("block", values, "block", text=text.format(**values)),
            Quantity("", None, "error", text=noise_text.format(**values)),
        ),
    )


def _verdict(rank: RankEstimate, block: Mapping[str, Any]) -> Verdict:
    """Return the bound, and whether the block shows where the rank ends."""
    stored = block["rank_if_exact"]
    sentence = f"rank {rank}, proved from a block of {block['contexts']:,} × {block['tokens']:,}"
    if stored > rank.value:
        sentence += f" that may hold noise; rank ≥ {stored:,} if the logits were never rounded"
    if not block["is_too_small"]:
        return Verdict(f"{sentence}; σ falls by a factor of {rank.gap or math.inf:.3g} after it", "")
    more = "more contexts, or flatter ones such as prompts of random tokens, make a larger block"
    return Verdict(f"{sentence}; the block is too small to show where the rank ends", more)
