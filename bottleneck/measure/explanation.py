"""What explains rows of logits that lie in the span of W, or leave it: edits, a bias, other models, noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..spectrum import EPS
from .entries import Entries
from .span import Mask, Matrix, RowFits, Span, explained

ONE, MOST, CLOSE, SOME = 0.99, 0.5, 0.5, 0.1
"""Share of what the rows leave that one vector holds if it is of rank 1, share that a function of the logits explains
if it may be the reason, what rows leave outside at most if they may be those of a changed layer, and the share of rows
that fit while others do not from which they come from several models."""
CLEAR = 10.0
"""Margin by which a direction of the rows has to exceed roundoff, and a bias roundoff times the mean context vector
over the deviations from it: what a change of W makes of the deviations would then be seen as well."""
TINY = float(np.finfo(np.float64).tiny)
BELOW = 50.0
"""How many nats masked entries lie below all others where no other entry of their row has their number."""
NAMED = 8
"""Number of tokens that a sentence names."""


@dataclass(frozen=True)
class Explanation:
    """The fit that explains most rows, and what else than roundoff it needs, or what may be there instead."""

    fit: RowFits
    edit: str = ""
    doubt: str = ""
    of_differences: bool = False
    """Whether ``fit`` is that of differences of the rows."""
    least: float = np.inf
    """The least median of what the rows leave with their bias in other strengths, and of what their differences leave
    over √2, both over the size of the rows; infinite where neither was needed."""


def explain(entries: Entries, span: Span, d: int) -> Explanation:
    """Fit the rows as they are, with the output bias in another strength, and without what is common to them."""
    rows, seen, error = entries.rows, entries.seen, entries.error
    n, plain = len(rows), span.fit_most(rows, seen, error)
    pairs = entries.pairs(plain.moved)
    enough = n > 1 and bool((pairs[1].sum(1) >= d + 2).all())
    edited = seen & ~plain.seen
    if plain.fits.all():
        if not edited.any():
            return Explanation(plain)
        if enough and span.fit(*pairs).fits.all():
            return Explanation(plain, f"with a bias of rank 1 on {_tokens(edited)}")
        return _but_for(edited, Explanation(plain, "but"), entries)
    but = " but for some of their tokens" * bool(edited[plain.fits].any())
    some = f"{plain.fits.sum():,} of {n:,} rows lie in the span of W{but}, and the others not"
    if 2 * plain.fits.sum() >= n:
        return Explanation(plain, doubt=some)
    sizes, least = plain.left / np.maximum(plain.outside, TINY), np.inf
    if (own := entries.bias - span.basis @ (span.basis.T @ entries.bias)).any():
        scaled = span.with_vector(own / np.linalg.norm(own)).fit_most(rows, seen, error)
        if scaled.fits.all():
            times = 1 + scaled.coefficients[:, -1] / np.linalg.norm(own)
            low, high = (f"{each:.3g}" for each in (times.min(), times.max()))
            strength = low if low == high else f"{low} to {high}"
            found = Explanation(scaled, f"with its bias {strength} times, as a temperature makes it")
            edited = seen & ~scaled.seen
            return _but_for(edited, replace(found, edit=f"{found.edit}, but"), entries) if edited.any() else found
        least = float(np.median(scaled.outside))
    if not enough:
        few = "a single row" if n == 1 else f"rows that share hardly more than d = {d:,} tokens"
        return Explanation(plain, doubt=f"{few}, whose output bias may be any vector")
    without = span.fit_most(*pairs)
    if 2 * without.fits.sum() >= n:
        return _common(plain, without, span, pairs[1] & ~without.seen)
    if plain.fits.mean() >= SOME:
        return Explanation(plain, doubt=some)
    least = min(least, float(np.median(without.left / np.maximum(sizes, TINY))) / np.sqrt(2))
    whole = plain.seen.all(0)  # an entry that is left out of one row alone hides what is common to the rows
    left = plain.residual[:, whole] if whole.sum() >= d + 2 else np.where(plain.seen, plain.residual, 0.0)
    values, vectors = np.linalg.eigh(left @ left.T)
    if values[-1] > ONE * values.sum() and np.ptp(np.sign(vectors[:, -1])) == 0:
        return Explanation(plain, doubt="one vector in other strengths from row to row is added: a bias at several "
                            "temperatures, or a change of W")  # fmt: skip
    if np.median(explained(span, plain)) > MOST:
        return Explanation(plain, doubt="a function of the logits, such as a soft cap, would leave as much")
    if np.median(plain.outside) < CLOSE and _need_more_columns(entries, plain, d):
        return Explanation(plain, doubt=f"no output layer with d = {d:,} makes these rows: noise on this one's "
                            "logits, a watermark, or a mixture of models")  # fmt: skip
    return Explanation(plain, least=least)


def _need_more_columns(entries: Entries, fit: RowFits, d: int) -> bool:
    """Return whether rows have more directions than the d and the bias of any layer, by more than roundoff."""
    rows = entries.rows[:, entries.seen.all(0)] if entries.wide is None else entries.wide
    roundoff = float((fit.moved**2).mean()) * rows.size + len(rows) * EPS["float64"] * _beyond(rows, 0)
    return _beyond(rows, d + 1) > roundoff


def noise_seen(entries: Entries, fit: RowFits, span: Span, d: int) -> float:
    """Return the size of what rows hold beyond d + 2 directions, over that of their errors.

    Any layer with a bias has no more. The size is larger by √2 where differences of rows were fitted. An entry that was
    left out counts as it is or as it was fitted, whichever needs fewer directions. Where there are no more rows than
    that, it is infinite, because they do not show it.
    """
    fitted = fit.coefficients[:, : span.basis.shape[1]] @ span.basis.T
    each = [fitted + np.where(taken, fit.residual, 0.0) for taken in (np.isfinite(fit.residual), fit.seen)]
    each = each if entries.wide is None else [entries.wide]
    n, m = (size - d - 2 for size in each[0].shape)
    if n <= 0:
        return np.inf
    energy = min(_beyond(rows, d + 2) for rows in each)  # of n times m − 1 errors, because rows are centred
    return float(np.sqrt(3 * energy / (n * max(m - 1, 1)) / np.mean(entries.error[entries.seen] ** 2)))


def _beyond(rows: Matrix, directions: int) -> float:
    """Return the energy of what more directions of the row-centred rows hold."""
    rows = rows - rows.mean(1, keepdims=True) if rows.shape[1] else rows
    return max(0.0, float(np.linalg.eigvalsh(rows @ rows.T)[: max(0, len(rows) - directions)].sum()))


def _common(plain: RowFits, pairs: RowFits, span: Span, edited: Mask) -> Explanation:
    """Explain rows whose differences, but for edited tokens, lie in the span, as a bias that W lacks makes it.

    A change of W does the same where it acts on the mean of the context vectors, and what it makes of their deviations
    is below roundoff.
    """
    hidden = span.hidden(plain)
    mean, deviation = np.linalg.norm(hidden.mean(0)), np.linalg.norm(hidden - hidden.mean(0), axis=1)
    if not pairs.fits.all():
        return Explanation(pairs, doubt=f"the differences of {pairs.fits.sum():,} of {len(deviation):,} rows fit")
    if np.median(plain.outside / plain.limit) * np.median(deviation) <= CLEAR * mean:
        return Explanation(pairs, doubt="what rows leave is common to them: a bias, or a small change of W")
    if edited.any():
        but = f"the differences of the rows lie in the span of W but for {_tokens(edited)}"
        return Explanation(pairs, doubt=f"{but}: edited logits, or rows of W that differ")
    return Explanation(pairs, "with a bias of rank 1 on most tokens", of_differences=True)


def _but_for(edited: Mask, found: Explanation, entries: Entries) -> Explanation:
    """Explain rows that fit but for some entries: masked ones lie far below all others, or are one number in each row.

    Others may be those of edited logits, or of rows of W that differ.
    """
    rows, some = entries.rows + entries.bias, edited.any(1)
    below = (np.where(found.fit.seen, rows, np.inf).min(1, keepdims=True) - rows)[edited]
    numbers = np.where(edited, rows, np.nan)[some]
    off = 2 * entries.error[edited].max()
    is_one = (np.nanmax(numbers, 1) - np.nanmin(numbers, 1) <= off) & (edited.sum(1)[some] > 1)
    if (below >= BELOW).all() or ((below > 0).all() and is_one.all()):
        return replace(found, edit=f"{found.edit} for {_tokens(edited)}, which lie below all others, as masked ones do")
    text = f"the rows lie in the span of W {found.edit} for {_tokens(edited)}: edited logits, or rows of W that differ"
    return replace(found, edit="", doubt=text)


def _tokens(edited: Mask) -> str:
    """Return the tokens of edited entries, (n, M), by name, or the share of these entries if most tokens have some."""
    ids = np.flatnonzero(edited.any(0))
    if 2 * len(ids) > edited.shape[1]:
        return f"{100 * edited.mean():.2g} % of their numbers, at other tokens in each row"
    return f"{'token' if len(ids) == 1 else 'tokens'} {', '.join(map(str, ids[:NAMED]))}" + (
        f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else ""
    )


def used_directions(found: Explanation, span: Span) -> int | None:
    """Return the number of directions of W that different rows use, or ``None`` if they use almost all they can."""
    fit = found.fit
    rows, noise = fit.coefficients[:, 1 : span.basis.shape[1]], fit.moved * fit.spread
    n, r = rows.shape
    values, of_noise = np.linalg.svd(rows / noise[:, None], compute_uv=False), np.sqrt(n) + np.sqrt(r)  # the largest
    used = int((values > CLEAR * of_noise).sum())
    if (values[used:] > of_noise).any():  # noise may hide these directions
        return None
    along = np.sort(rows @ np.linalg.svd(rows, full_matrices=False)[2][0])
    apart = 1 + int((np.diff(along) > CLEAR * noise.max()).sum())  # equal states, but for rounding, count once
    return used if 0 < used < min(r - 1, apart - found.of_differences) else None  # whose sum is zero
