"""Compare models with a reference on one text: divergences, agreement, and where each beats the other."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from ..core.checks import typed
from ..core.options import takes
from ..errors import ConfigurationError, MatrixError, Parameter, SourceError
from ..results.base import short_names
from ..sources import (
    Block,
    KldSource,
    Part,
    PartialSource,
    Source,
    TopK,
    is_several,
    labelled,
)
from ..sources.measurement import MeasurementOptions, prepared
from ..spectrum import SpectrumSettings
from ..spectrum.replaced import MASK
from .comparison import Comparison, Comparisons, Example, Prediction
from .difference import ObservedDifference
from .divergences import LLAMA_CPP_LEAST, ByContext, Distributions, Matrix, Values, divergences, normalized, statistics
from .intervals import interval_divergences
from .pairwise_kld import CACHED, looks_rounded

PREDICTIONS = 5
"""Number of likeliest tokens shown for each model, as in table 14 of Yang et al. 2018."""
CONTEXT_TOKENS = 30
"""Number of tokens shown before the target."""
SENTENCE_TOKENS = 60
"""Largest number of tokens shown of the target's sentence, to either side; a text without lines is one sentence."""
Ids = NDArray[np.int64]


@overload
def compare(
    first: list[Any] | tuple[Any, ...] | dict[str, Any],
    second: None = None,
    *,
    examples: int = 5,
    like_llama_cpp: bool = False,
    **options: Unpack[MeasurementOptions],
) -> Comparisons: ...


@overload
def compare(
    first: Any,
    second: Any,
    *,
    examples: int = 5,
    like_llama_cpp: bool = False,
    **options: Unpack[MeasurementOptions],
) -> Comparison: ...


@takes(MeasurementOptions)
@typed
def compare(
    first: Any,
    second: Any = None,
    *,
    examples: int = 5,
    like_llama_cpp: bool = False,
    **options: Unpack[MeasurementOptions],
) -> Comparison | Comparisons:
    r"""Compare models Q with a reference P on one text, exactly, in one pass and one more for each difference's rank.

    For each model: perplexities; KL(P‖Q) and its percentiles, KL(Q‖P), Jensen–Shannon divergence and total variation
    TV, each a mean over contexts; 1 − TV, the acceptance rate α of speculative sampling of Q's drafts by P, and the
    tokens that a step of γ = 4 drafts generates, :math:`(1 - α^{γ+1})/(1 - α)`, of which one is P's own (Leviathan et
    al. 2023, equation 1 and corollary 3.6); Δp = Q(target) − P(target); the shares of contexts with the same top token
    and of the same five; the numerical and effective rank of log P − log Q, row-centred; and the contexts where one
    beats the other by the largest margin (Yang et al. 2018, table 14).

    Sources of different vocabulary sizes are cut to the first tokens, which both have, and renormalized. Standard
    errors take contexts as independent draws; neighbouring ones are not quite.

    A reference of which a part is unseen (`PartialSource`) gives intervals, ``value`` ± ``roundoff``, which hold every
    distribution that its numbers allow; what has no upper bound there, rank and contexts are left out.

    Args:
        first: the reference, a source as for `rank`; or a list, or a dictionary by label, of the reference and all
            models.
        second: the model, a source with the same contexts, unless ``first`` is several sources.
        examples: number of contexts to keep for each model.
        like_llama_cpp: whether KL(P‖Q) leaves out tokens whose probability in P is at most e⁻¹⁶, as llama.cpp's
            ``perplexity --kl-divergence`` does. Its other definitions are those above.
        options: how the sources are opened, and where to report, see `MeasurementOptions`.

    Returns:
        A comparison for two sources, or of several, `Comparisons` of each model with the first.

    Raises:
        SourceError: when the sources are not on the same tokens, a token that follows has probability 0, or a model
            is a part of a distribution.
        ConfigurationError: for fewer than two sources, or a negative number of examples.

    Example:
        >>> import numpy as np
        >>> P, Q = np.log([[0.5, 0.5], [0.5, 0.5]]), np.log([[0.25, 0.75], [0.5, 0.5]])
        >>> round(compare(P, Q).statistics["acceptance"].value, 12)
        0.875
    """
    if examples < 0:
        raise ConfigurationError(Parameter("examples"), f" must be at least 0, not {examples}")
    several = second is None and isinstance(first, list | tuple | dict)
    if (second is None) != several or (several and len(first) < 2) or (not several and is_several(first)):
        raise ConfigurationError("a comparison takes a reference and at least one model: give two sources, or a list")
    named = labelled(first if several else [first, second])
    how, sources = SpectrumSettings.of(options), prepared(named.values(), options)
    for source in sources:
        if source.description["kind"] == "matrix":
            raise SourceError(f"{source.description['path']} is a matrix of any kind: give log-probabilities or logits")
    if isinstance(sources[0], TopK):  # which does not tell how many tokens there are
        text = next((source.text for source in sources[1:] if source.text), None)
        sources[0] = sources[0].of_vocabulary(min(source.shape[1] for source in sources[1:]), text)
    reference, *models = sources
    if part := next((model for model in models if isinstance(model, PartialSource)), None):
        raise SourceError(
            f"{part.description['path']} holds a part of each distribution, so KL(P‖Q) has no upper bound with it as "
            "Q: give it as the first source, the REFERENCE"
        )
    scored = [source.scored() for source in sources]
    if len({source.shape[0] for source in scored}) == 1:  # all of them know the tokens after the same contexts
        reference, *models = sources = scored
    targets = _targets(sources)
    pairs = [Pair(reference, model, targets, examples) for model in models]
    rows = min(source.rows_at_once() for source in sources)
    with how.progress.bar("comparing", reference.shape[0], "contexts") as bar:
        for first_block, *blocks in zip(*(_rows(source, rows) for source in sources), strict=True):
            for pair, block in zip(pairs, blocks, strict=True):
                pair.add(first_block, block)
            bar.advance(len(first_block.log_probs))
    results = [pair.comparison(how, like_llama_cpp=like_llama_cpp) for pair in pairs]
    if not several:
        return results[0]
    label_of_reference, *labels = named
    return Comparisons(_labelled(each, label_of_reference, label) for each, label in zip(results, labels, strict=True))


def _rows(source: Source, rows: int) -> Iterator[Any]:
    """Yield all rows of a source in blocks, or in parts."""
    ranges = source.ranges(rows)
    return source.parts(ranges) if isinstance(source, PartialSource) else source.blocks(ranges)


def _labelled(comparison: Comparison, *labels: str) -> Comparison:
    """Return a comparison whose sources have these labels, where they are not the ends of their paths."""
    first, second = (
        source if short_names([source["path"]]) == [label] else {**source, "label": label}
        for source, label in zip(comparison.sources, labels, strict=True)
    )
    return replace(comparison, sources=(first, second))


def _targets(sources: Sequence[Source]) -> Ids | None:
    """Return the tokens that follow, if the sources know all of them; refuse sources on different tokens."""
    least, why = min(source.shape[1] for source in sources), ""
    counts = [source.shape[0] for source in sources]
    if len(set(counts)) > 1:
        each = (f"{source.description['path']} has {n:,}" for source, n in zip(sources, counts, strict=True))
        raise SourceError(
            f"the sources have different numbers of contexts: {', '.join(each)}; if all are on one text and begin "
            "with the same contexts, compare the first of each: give ", Parameter("contexts"), f" {min(counts)}",
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
                f"{' and '.join(str(each.description['path']) for each in sources)} do not predict the same tokens: "
                f"{why}; compare models with one vocabulary on one text, with the same ",
                Parameter("contexts"), ", ", Parameter("context_length"), " and ", Parameter("stride"), ", and use ",
                Parameter("bos", "off"), " if only one of them begins its windows with a special token",
            )  # fmt: skip
    return None if known is None or (known < 0).any() else known


class Pair:
    """What is collected of a reference and a model, block by block."""

    def __init__(self, reference: Source, model: Source, targets: Ids | None, examples: int) -> None:
        self._sources, self._targets, self._examples = (reference, model), targets, examples
        self._is_partial = isinstance(reference, PartialSource)
        self._vocab = min(reference.shape[1], model.shape[1])
        if self._is_partial and self._vocab < reference.shape[1]:
            one, other = (str(source.description["path"]) for source in self._sources)
            raise SourceError(
                f"{other} has {model.shape[1]:,} tokens, and {one} has {reference.shape[1]:,}: give a model with as "
                "many, or more"
            )
        self._eps = [each.rows_precision for each in self._sources if not isinstance(each, PartialSource)]
        self._found: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
        self._cut = np.zeros(2)
        self._left_out = np.zeros((2, self._vocab), dtype=np.int64)
        self._difference = None if self._is_partial else ObservedDifference(self._sources, self._eps, self._vocab)
        self._best: tuple[list[Example], list[Example]] = ([], [])

    def add(self, first: Block | Part, second: Block) -> None:
        """Take the same rows of both sources."""
        at_once = max(1, CACHED // self._vocab)
        for place in range(0, len(second.log_probs), at_once):
            some, start = slice(place, place + at_once), second.start + place
            parts = [block.log_probs[some] for block in (first, second)]
            self._cut += [np.exp(part[:, self._vocab :], dtype=np.float64).sum() for part in parts]
            entries = [part[:, : self._vocab] for part in parts]
            targets = None if self._targets is None else self._targets[start : start + len(entries[1])]
            if isinstance(first, Part):
                part = Part(start, entries[0], first.seen[some], first.error[some], first.shift)
                found = self._add_part(part, entries[1], targets)
            else:
                found = self._add_whole(start, entries, targets)
            for name, values in found.items():
                self._found[name].append(values)

    def _add_part(self, part: Part, entries: Matrix, targets: Ids | None) -> dict[str, Values]:
        is_llama_cpp = isinstance(self._sources[0], KldSource)
        found = interval_divergences(part, normalized(entries, self._eps[0]), targets, is_llama_cpp=is_llama_cpp)
        if targets is not None:
            self._sources[1].check_losses(found["nll"][0], part.start)
        return found

    def _add_whole(self, start: int, entries: Sequence[Matrix], targets: Ids | None) -> dict[str, Values]:
        P, Q = (normalized(each, eps) for each, eps in zip(entries, self._eps, strict=True))
        self._left_out += [(each < each.max(1, keepdims=True) + MASK).sum(0) for each in entries]
        found = divergences(P, Q, targets)
        assert self._difference is not None
        self._difference.watch(start, entries)
        if targets is not None:
            self._keep_examples(start, P, Q, np.stack([found["reference_nll"][0], found["nll"][0]]))
        return found

    def _keep_examples(self, start: int, P: Distributions, Q: Distributions, nll: Matrix) -> None:
        for source, losses in zip(self._sources, nll, strict=True):
            source.check_losses(losses, start)
        for best, margins in zip(self._best, (nll[1] - nll[0], nll[0] - nll[1]), strict=True):
            for index in np.argsort(-margins, kind="stable")[: self._examples].tolist():
                if margins[index] > (abs(best[-1].margin) if len(best) == self._examples else 0.0):
                    first, second = nll[:, index].tolist()
                    best.append(self._example(start + index, (first, second), (P.p[index], Q.p[index])))
                    best.sort(key=lambda each: (-abs(each.margin), each.row))
                    del best[self._examples :]

    def _example(self, row: int, nll: tuple[float, float], p: tuple[Values, Values]) -> Example:
        """Return a context with its text, and each model's likeliest tokens."""
        assert self._targets is not None
        text = next((source.text for source in self._sources if source.text), None)
        names = text.tokens if text else lambda ids: [f"<{token}>" for token in ids]
        listed = [np.argsort(-each, kind="stable")[:PREDICTIONS] for each in p]
        first, second = (
            tuple(map(Prediction, names(ids.tolist()), each[ids].tolist())) for ids, each in zip(listed, p, strict=True)
        )
        return Example(
            row,
            text.before(row, CONTEXT_TOKENS) if text else "",
            names([int(self._targets[row])])[0],
            text.sentence(row, SENTENCE_TOKENS) if text else "",
            nll,
            (first, second),
        )

    def comparison(self, how: SpectrumSettings, *, like_llama_cpp: bool) -> Comparison:
        """Return the comparison, with the rank of the difference, which takes all entries and a pass of its own."""
        joined = ((name, np.concatenate(parts, 1)) for name, parts in self._found.items())
        found = {name: ByContext(each[0], each[1], self._is_partial) for name, each in joined}
        reference, model = self._sources
        if like_llama_cpp and "kl_llama_cpp" not in found:
            raise SourceError(
                f"{reference.description['path']} does not show all tokens above e^{LLAMA_CPP_LEAST:.0f}, which "
                "llama.cpp's KL sums over: leave out --like-llama-cpp"
            )
        notes = [
            f"cut to the first {self._vocab:,} tokens, which both have, and renormalized; the others hold "
            f"{cut / source.shape[0]:.2g} of the probability of {source.description['path']}"
            for cut, source in zip(self._cut, self._sources, strict=True)
            if source.shape[1] > self._vocab
        ]
        for left_out, source in zip(self._left_out, self._sources, strict=True):
            if ((left_out > 0) & (left_out < reference.shape[0])).any():
                share = 100 * left_out.sum() / (reference.shape[0] * self._vocab)
                notes.append(
                    f"{source.description['path']} leaves out {share:.3g} % of its numbers (-inf or a mask), other "
                    "tokens in each context, as truncations do (top-k, top-p): this compares what they left, not the "
                    "model's own distributions"
                )
        if like_llama_cpp:
            notes.append(f"KL leaves out tokens below e^{LLAMA_CPP_LEAST:.0f} in P, as llama.cpp does")
        elif self._is_partial:
            notes.append(
                "intervals hold every distribution that the reference's numbers allow; KL(Q‖P) has no upper bound"
            )
        of_both = zip(self._eps[::-1], "QP", strict=False)  # of Q alone, if a part of P is unseen
        notes += filter(None, (looks_rounded(eps, f"the numbers of {name}") for eps, name in of_both))
        if self._targets is None:
            notes.append("which tokens follow is unknown, so columns that need them are missing")
        elif (is_unseen := np.isinf(found["reference_nll"].error)).any():
            notes.append(_without_unseen(found, is_unseen, like_llama_cpp=like_llama_cpp))
        difference = None
        try:
            difference = self._difference.rank(how) if self._difference else None
        except MatrixError as error:
            notes.append(f"the rank of the difference is not known: {error}")
        losses = [float(found[name].values.mean()) for name in ("reference_nll", "nll") if name in found]
        return Comparison(
            sources=(dict(reference.description), dict(model.description)),
            contexts=reference.shape[0],
            nll=(losses[0], losses[1]) if len(losses) == 2 else None,
            first_better=tuple(self._best[0]),
            second_better=tuple(self._best[1]),
            vocab=self._vocab,
            statistics=statistics(found, like_llama_cpp=like_llama_cpp),
            difference=difference,
            definitions="llama.cpp" if like_llama_cpp else "exact",
            notes=tuple(notes),
            by_context={
                "kl": found["kl_llama_cpp" if like_llama_cpp else "kl"].values,
                "entropy": found["entropy"].values,
            },
        )


def _without_unseen(found: dict[str, ByContext], is_unseen: NDArray[np.bool_], *, like_llama_cpp: bool) -> str:
    """Leave out what depends on the unseen probabilities of tokens that follow, and return a note about it.

    llama.cpp takes the probability at the floor.
    """
    least = math.exp(found["reference_nll"].values.mean())
    for name in ("reference_nll", "log_ratio"):
        each = found.pop(name)
        if like_llama_cpp:
            found[name] = replace(each, error=np.where(is_unseen, 0.0, each.error))
    return (
        f"the reference does not show the probability of {is_unseen.sum():,} of {len(is_unseen):,} tokens that follow: "
        f"its perplexity is about {least:.4g} or more"
    )
