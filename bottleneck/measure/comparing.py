"""Compare models with a reference on one text: divergences, agreement, and where each beats the other."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from ..core.checks import typed
from ..core.options import COMPARE, ComparisonOptions, check_options, takes
from ..errors import ConfigurationError, Parameter, SourceError
from ..evaluation import perplexity
from ..language_models import Text
from ..language_models.source import begin_texts, text_of
from ..results.base import short_names
from ..sources import (
    PartialSource,
    Source,
    TopK,
    is_several,
    labelled,
)
from ..sources.measurement import prepared
from ..spectrum import SpectrumSettings
from .comparison import SIGNS, Comparison, Comparisons, farther_by_pairs
from .pair import Pair

Ids = NDArray[np.int64]
SAMPLE = 200
"""Tokens whose names show whether two vocabularies are one."""


@overload
def compare(
    first: list[Any] | tuple[Any, ...] | dict[str, Any],
    second: None = None,
    **options: Unpack[ComparisonOptions],
) -> Comparisons: ...


@overload
def compare(
    first: Any,
    second: list[str] | dict[str, Any],
    **options: Unpack[ComparisonOptions],
) -> Comparisons: ...


@overload
def compare(
    first: Any,
    second: Any,
    **options: Unpack[ComparisonOptions],
) -> Comparison: ...


@takes(ComparisonOptions)
@typed
def compare(
    first: Any,
    second: Any = None,
    **options: Unpack[ComparisonOptions],
) -> Comparison | Comparisons:
    r"""Compare models Q with a reference P on one text, exactly, in one pass and one more for each difference's rank.

    For each model: perplexities; KL(P‖Q) and its percentiles, KL(Q‖P), Jensen–Shannon divergence and total variation
    TV, each a mean over contexts; 1 − TV, the acceptance rate α of speculative sampling of Q's drafts by P, and the
    tokens that a step of γ = 4 drafts generates, :math:`(1 - α^{γ+1})/(1 - α)`, of which one is P's own (Leviathan et
    al. 2023, equation 1 and corollary 3.6); Δp = Q(target) − P(target); the shares of contexts with the same top token
    and of the same five; the numerical and effective rank of log P − log Q, row-centred; and the contexts where one
    beats the other by the largest margin (Yang et al. 2018, table 14).

    Sources of different vocabulary sizes are cut to the first tokens, which both have, and renormalized. Standard
    errors count blocks of text, because neighbouring contexts are not independent (`block_starts`), and copies of a
    context or a text once (`Sampling`).

    A limit is kept if the worse end of the 95 % interval keeps it. Several models are compared with each other as well:
    by how much each is farther from the reference than the next closer one, from the differences context by context.

    A reference of which a part is unseen (`PartialSource`) gives intervals, ``value`` ± ``roundoff``, which hold every
    distribution that its numbers allow; what has no upper bound there, rank and contexts are left out.

    Args:
        first: the reference, a source as for `rank`; or a list, or a dictionary by label, of the reference and all
            models.
        second: the model, a source with the same contexts, or a list of models or a dictionary by label, unless
            ``first`` is several sources.
        options: how the sources are opened, where to report, what is shown, and which limits a model has to keep, see
            `ComparisonOptions`.

    Returns:
        A comparison for two sources, or of several, `Comparisons` of each model with the first.

    Raises:
        SourceError: when the sources are not on the same tokens (of different vocabularies it says the perplexity per
            byte), a token that follows has probability 0, or a model is a part of a distribution.
        ConfigurationError: for fewer than two sources, a negative number of examples, or a temperature or limit out of
            range.

    Example:
        >>> import numpy as np
        >>> P, Q = np.log([[0.5, 0.5], [0.5, 0.5]]), np.log([[0.25, 0.75], [0.5, 0.5]])
        >>> round(compare(P, Q).statistics["acceptance"].value, 12)
        0.875
    """
    how: dict[str, Any] = {name: options.get(name, option.default) for name, option in COMPARE.items()}
    check_options(COMPARE, how)
    examples, like_llama_cpp, temperature, floor, *limits = how.values()
    alike = isinstance(second, list | tuple) and len(second) > 1 and getattr(first, "shape", None)
    if isinstance(second, dict):
        if (of_first := labelled([first])).keys() & second.keys():
            raise ConfigurationError("a model has the label of the reference: give all of them as one dictionary")
        first, second = {**of_first, **second}, None
    elif is_several(second) or (alike and all(getattr(each, "shape", None) == alike for each in second)):
        first, second = labelled([first, *second]), None
    several = second is None and isinstance(first, list | tuple | dict)
    if (second is None) != several or (several and len(first) < 2) or (not several and is_several(first)):
        raise ConfigurationError("a comparison takes a reference and at least one model: give two sources, or a list")
    named = labelled(first if several else [first, second])
    contexts, settings = options.get("contexts"), SpectrumSettings.of(options)
    opened = prepared(named.values(), {**options, "contexts": None})
    sources = [_labelled(source, label) for label, source in zip(named, opened, strict=True)]
    for source in sources:
        source.check_distributions()
    if isinstance(sources[0], TopK):  # which does not tell how many tokens there are
        text = text_of(sources[1:])
        sources[0] = sources[0].of_vocabulary(min(source.shape[1] for source in sources[1:]), text)
    reference, *models = sources
    if part := next((model for model in models if isinstance(model, PartialSource)), None):
        raise SourceError(
            f"{part.name} holds a part of each distribution, so KL(P‖Q) has no upper bound with it as "
            "Q: give it as the first source, the REFERENCE"
        )
    scored = [source.scored() for source in sources]
    if all(each.targets is not None for each in scored) or len({each.shape[0] for each in scored}) == 1:
        sources = scored  # they know the tokens after the same contexts
    reference, *models = sources = sources if contexts is None else [source.first(contexts) for source in sources]
    _check_vocabularies(sources, options)
    targets = _targets(sources)
    if how["max_ppl_ratio"] is not None and targets is None:
        raise ConfigurationError("which tokens follow is unknown, so leave out ", Parameter("max_ppl_ratio"))
    if (temperature != 1 or floor) and isinstance(reference, PartialSource):
        raise ConfigurationError(
            f"{reference.name} holds a part of each distribution, which cannot be normalized again: "
            "leave out ", Parameter("floor" if floor else "temperature"),
        )  # fmt: skip
    pairs = [Pair(reference, model, targets, examples, temperature=temperature, floor=floor) for model in models]
    rows = min(source.rows_at_once() for source in sources)
    with settings.progress.bar("comparing", reference.shape[0], "contexts") as bar:
        for first_block, *blocks in zip(*(_rows(source, rows) for source in sources), strict=True):
            for pair, block in zip(pairs, blocks, strict=True):
                pair.add(first_block, block)
            bar.advance(len(first_block.log_probs))
    bounds = dict(zip(SIGNS, limits, strict=True))
    equal = _first_equal(pairs, text_of(sources))
    results = [
        pair.comparison(settings, equal, like_llama_cpp=like_llama_cpp).judged(bounds, cut=pair.cut, doubt=pair.doubt)
        for pair in pairs
    ]
    return Comparisons(farther_by_pairs(results, begin_texts(sources), equal)) if several else results[0]


def _first_equal(pairs: Sequence[Pair], text: Text | None) -> Ids:
    """Return the first context whose numbers, and all tokens before it where they are known, equal those of each one.

    Numbers alone do not tell a copy of a text from another place where an n-gram model sees the same last words.
    """
    keys = [pair.rows for pair in pairs]
    keys += [] if text is None else [text.history_hashes(len(keys[0]))]
    _, firsts, copies = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    return firsts[copies.ravel()]


def _rows(source: Source, rows: int) -> Iterator[Any]:
    """Yield all rows of a source in blocks, or in parts."""
    ranges = source.ranges(rows)
    return source.parts(ranges) if isinstance(source, PartialSource) else source.blocks(ranges)


def _labelled(source: Source, label: str) -> Source:
    """Return a source with this label, where it is not the end of its path."""
    if short_names([str(source.description["path"])]) == [label]:
        return source
    source = copy.copy(source)
    source.description = {**source.description, "label": label}
    return source


def _check_vocabularies(sources: Sequence[Source], options: Any) -> None:
    """Refuse models of different vocabularies, with the number that compares them on one text."""
    least = min(source.shape[1] for source in sources)
    texts = [each.text for each in sources if each.text and each.text.tokenizer]
    targets = [each.targets for each in sources if each.targets is not None]
    if len(texts) < len(sources) or len(targets) < len(sources):
        return
    ids = [*range(0, least, max(1, least // SAMPLE))]
    names = {(each.shape[1], *text.names(ids)) for each, text in zip(sources, texts, strict=True)}
    if len(names) == 1 or all(np.array_equal(each, targets[0]) for each in targets):
        return
    why = "the sources have different vocabularies, so KL(P‖Q) is not defined"
    named = dict.fromkeys(" ".join(filter(None, (text.name, text.split))) for text in texts)
    if len(named) > 1:
        raise SourceError(
            f"{why}, and perplexity per byte does not compare them on different texts, {' and '.join(named)}: give one "
            "for all, ",
            Parameter("data"),
        )
    scores = [perplexity(source, progress=options.get("progress", False)) for source in sources]
    each = (
        f"{source.name} {score.per_byte:.4f} ({score.bytes:,} bytes)"
        for source, score in zip(sources, scores, strict=True)
        if score.per_byte
    )
    raise SourceError(f"{why}; perplexity per byte, which needs none: {', '.join(each) or 'unknown'}")


def _targets(sources: Sequence[Source]) -> Ids | None:
    """Return the tokens that follow, if the sources know all of them; refuse sources on different tokens."""
    least, why = min(source.shape[1] for source in sources), ""
    counts = [source.shape[0] for source in sources]
    if len(set(counts)) > 1:
        each = (f"{source.name} has {n:,}" for source, n in zip(sources, counts, strict=True))
        numbers = f"the sources have different numbers of contexts: {', '.join(each)}"
        if (texts := max(len(source.text.starts) if source.text else 1 for source in sources)) > 1:
            if max(counts) - min(counts) == texts:
                raise SourceError(f"{numbers}; of these {texts:,} texts, leave out the rows that predict no token")
            raise SourceError(f"{numbers}: give all of them on the same texts")
        raise SourceError(
            f"{numbers}; if all are on one text and begin with the same contexts, compare the first of each: give ",
            Parameter("contexts", min(counts)),
        )  # fmt: skip
    rows = [source.targets for source in sources if source.targets is not None]
    known = None if not rows else reduce(lambda one, other: np.where(one < 0, other, one), rows)
    for source in sources:
        if known is None or source.targets is None:
            continue
        if (different := np.flatnonzero((known != source.targets) & (source.targets >= 0))).size:
            row = int(different[0])
            why = f"context {row:,} is followed by token {known[row]:,} and by token {source.targets[row]:,}"
        elif known.max() >= least:
            row = int(np.argmax(known >= least))
            why = f"token {known[row]:,}, which follows context {row:,}, is missing in a vocabulary of {least:,} tokens"
        if why:
            raise SourceError(
                f"{' and '.join(each.name for each in sources)} do not predict the same tokens: "
                f"{why}; compare models with one vocabulary on one text, with the same ",
                Parameter("contexts"), ", ", Parameter("context_length"), " and ", Parameter("stride"), ", and use ",
                Parameter("bos", "off"), " if only one of them begins its windows with a special token",
            )  # fmt: skip
    return None if known is None or (known < 0).any() else known
