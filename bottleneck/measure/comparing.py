"""Compare models with a reference on one text: divergences, agreement, and where each beats the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from ..core.checks import typed
from ..core.options import Opening, takes
from ..core.progress import Progress, reporting
from ..errors import ConfigurationError, MatrixError, Parameter, SourceError
from ..results.base import short_names
from ..sources import Block, Difference, FiniteColumns, PartialSource, Source, TopK, is_several, labelled, open_sources
from ..spectrum import effective_rank, numerical_rank
from ..spectrum.noise import COLUMNS, ROWS, noise_of_difference
from ..spectrum.rules import entry_roundoff
from .comparison import Comparison, Comparisons, DifferenceRank, Example, Prediction
from .computing import SpectrumSettings, compute_spectrum
from .divergences import LLAMA_CPP_LEAST, ByContext, Matrix, Rows, Values, divergences, normalized, statistics
from .pairwise_kld import CACHED
from .partial_comparison import PartialPair
from .source_kld import source_precision

PREDICTIONS = 5
"""Number of likeliest tokens shown for each model, as in table 14 of Yang et al. 2018."""
CONTEXT_TOKENS = 30
"""Number of tokens shown before the target."""
SENTENCE_TOKENS = 60
"""Largest number of tokens shown of the target's sentence, to either side; a text without lines is one sentence."""
SKETCHED, SKETCH_WIDTH = 1e13, 256
"""Operations T · M · min(T, M) above which the spectrum of a difference without thin factors is sketched, and the
number of the sketch's dimensions."""
Ids = NDArray[np.int64]


@overload
def compare(
    first: list[Any] | tuple[Any, ...] | dict[str, Any],
    second: None = None,
    *,
    examples: int = 5,
    like_llama_cpp: bool = False,
    progress: Progress | bool = False,
    **options: Unpack[Opening],
) -> Comparisons: ...


@overload
def compare(
    first: Any,
    second: Any,
    *,
    examples: int = 5,
    like_llama_cpp: bool = False,
    progress: Progress | bool = False,
    **options: Unpack[Opening],
) -> Comparison: ...


@takes(Opening)
@typed
def compare(
    first: Any,
    second: Any = None,
    *,
    examples: int = 5,
    like_llama_cpp: bool = False,
    progress: Progress | bool = False,
    **options: Unpack[Opening],
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
        progress: where to report; ``True`` means standard error.
        options: how the sources are opened, see `Opening`.

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
    sources = open_sources(named.values(), options)
    device = options.get("device", "auto")
    report = reporting(progress)
    for source in sources:
        source.prepare(report)
        if source.description["kind"] == "matrix":
            raise SourceError(f"{source.description['path']} is a matrix of any kind: give log-probabilities or logits")
    if isinstance(sources[0], TopK):  # which does not tell how many tokens there are
        sources[0] = sources[0].of_vocabulary(min(source.shape[1] for source in sources[1:]))
    reference, *models = sources
    if part := next((model for model in models if isinstance(model, PartialSource)), None):
        raise SourceError(
            f"{part.description['path']} holds a part of each distribution, so KL(P‖Q) has no upper bound with it as "
            "Q: give it as the first source, the REFERENCE"
        )
    targets = _targets(sources)
    pairs: list[Pair | PartialPair]
    if isinstance(reference, PartialSource):
        pairs = [PartialPair(reference, model, targets) for model in models]
    else:
        pairs = [Pair(reference, model, targets, examples) for model in models]
    rows = min(source.rows_at_once() for source in sources)
    with report.bar("comparing", sources[0].shape[0], "contexts") as bar:
        for first_block, *blocks in zip(*(_rows(source, rows) for source in sources), strict=True):
            for pair, block in zip(pairs, blocks, strict=True):
                pair.add(first_block, block)
            bar.advance(len(first_block.log_probs))
    how = SpectrumSettings(device=device, progress=report)
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
    """Return the tokens that follow, if a source knows them; refuse sources on different tokens."""
    reference = sources[0]
    for model in sources[1:]:
        T, contexts = reference.shape[0], model.shape[0]
        one, other = reference.targets, model.targets
        names = f"{reference.description['path']} and {model.description['path']}"
        if contexts != T:
            raise _not_the_same(names, f"they have {T:,} and {contexts:,} contexts")
        if one is None or other is None:
            continue
        if (different := np.flatnonzero(one != other)).size:
            row = int(different[0])
            raise _not_the_same(names, f"context {row:,} is followed by token {one[row]:,} and by token {other[row]:,}")
    known = next((source.targets for source in sources if source.targets is not None), None)
    least = min(source.shape[1] for source in sources)
    if known is not None and known.max() >= least:
        row = int(np.argmax(known >= least))
        raise _not_the_same(
            " and ".join(str(source.description["path"]) for source in sources),
            f"token {known[row]:,}, which follows context {row:,}, is missing in a vocabulary of {least:,} tokens",
        )
    return known


def _not_the_same(names: str, why: str) -> SourceError:
    return SourceError(
        f"{names} do not predict the same tokens: {why}; compare models with one vocabulary on the same ",
        Parameter("data"),
        ", ",
        Parameter("split"),
        " and ",
        Parameter("contexts"),
        ", with the same ",
        Parameter("context_length"),
        " and ",
        Parameter("stride"),
        ", and use ",
        Parameter("bos", "off"),
        " if only one of them begins its windows with a special token",
    )


class Pair:
    """What is collected of a reference and a model, block by block."""

    def __init__(self, reference: Source, model: Source, targets: Ids | None, examples: int) -> None:
        self._sources, self._targets, self._examples = (reference, model), targets, examples
        self._vocab = min(reference.shape[1], model.shape[1])
        self._eps = [source_precision(source) for source in self._sources]
        self._found: dict[str, list[NDArray[np.float64]]] = {}
        self._squares, self._cut = np.zeros(2), np.zeros(2)
        self._masked = False
        self._inferred = any(each.assumed for each in self._eps)
        self._every = -(-reference.shape[0] // ROWS)
        self._columns = np.linspace(0, self._vocab - 1, min(COLUMNS, self._vocab)).astype(int)
        self._sample: list[Matrix] = []  # of log P − log Q, if the precision of either is inferred
        self._best: tuple[list[Example], list[Example]] = ([], [])

    def add(self, *blocks: Block) -> None:
        """Take the same rows of both sources."""
        start, rows = blocks[0].start, max(1, CACHED // self._vocab)
        for first in range(0, len(blocks[0].log_probs), rows):
            parts = [block.log_probs[first : first + rows] for block in blocks]
            self._cut += [np.exp(part[:, self._vocab :], dtype=np.float64).sum() for part in parts]
            entries = [part[:, : self._vocab] for part in parts]
            P, Q = (normalized(each, eps) for each, eps in zip(entries, self._eps, strict=True))
            number = start + first
            targets = None if self._targets is None else self._targets[number : number + len(P.p)]
            found = divergences(P, Q, targets)
            for name, values in found.items():
                self._found.setdefault(name, []).append(values)
            finite = [np.where(np.isneginf(each), 0.0, each).astype(np.float64) for each in entries]
            self._squares += [float((each**2).sum()) for each in finite]
            if self._inferred:
                sampled = np.arange(number, number + len(P.p)) % self._every == 0
                self._sample.append((finite[0] - finite[1])[np.ix_(sampled, self._columns)])
            self._masked |= any(bool(np.isneginf(each).any()) for each in entries)
            if targets is not None:
                self._keep_examples(number, P, Q, np.stack([found["reference_nll"][0], found["nll"][0]]))

    def _keep_examples(self, start: int, P: Rows, Q: Rows, nll: Matrix) -> None:
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
        """Return the comparison, with the rank of the difference, which takes a pass of its own."""
        found = {name: ByContext(*np.concatenate(parts, 1)) for name, parts in self._found.items()}
        notes = [
            f"cut to the first {self._vocab:,} tokens, which both have, and renormalized; the others hold "
            f"{cut / source.shape[0]:.2g} of the probability of {source.description['path']}"
            for cut, source in zip(self._cut, self._sources, strict=True)
            if source.shape[1] > self._vocab
        ]
        if like_llama_cpp:
            notes.append(f"KL leaves out tokens below e^{LLAMA_CPP_LEAST:.0f} in P, as llama.cpp does")
        if self._targets is None:
            notes.append("which tokens follow is unknown, so columns that need them are missing")
        try:
            difference = self._difference(how)
        except MatrixError as error:
            difference = None
            notes.append(f"the rank of the difference is not known: {error}")
        losses = [found[name].values.mean() for name in ("reference_nll", "nll") if name in found]
        return Comparison(
            sources=(dict(self._sources[0].description), dict(self._sources[1].description)),
            contexts=self._sources[0].shape[0],
            nll=(float(losses[0]), float(losses[1])) if losses else None,
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

    def _difference(self, how: SpectrumSettings) -> DifferenceRank:
        """Return the rank of log P − log Q, whose tolerance covers the roundoff of both."""
        matrix: Source = Difference(*self._sources)
        if self._masked:
            matrix = FiniteColumns(matrix, progress=how.progress)
        T, M = shape = matrix.shape
        if T * M * min(shape) > SKETCHED and None in (source.factor_columns for source in self._sources):
            how = replace(how, method="sketch", width=SKETCH_WIDTH)
        eps = matrix.precision.value
        spectrum = compute_spectrum(matrix, eps, how).spectrum
        norms = (
            max(math.sqrt(squares), (each.size or 0.0) * math.sqrt(T * M))
            for squares, each in zip(self._squares, self._eps, strict=True)
        )
        roundoff = sum(entry_roundoff(norm, each.value) for norm, each in zip(norms, self._eps, strict=True))
        size = math.sqrt(max(self._squares) / (T * M))
        deviation = noise_of_difference(np.concatenate(self._sample), size=size, eps=eps) if self._sample else 0.0
        shown = deviation * (math.sqrt(T) + math.sqrt(M))
        rank = numerical_rank(
            spectrum.centered,
            shape=shape,
            eps=eps,
            floor=max(spectrum.centered_error, roundoff),
            noise=max(math.hypot(*(each.noise_norm(shape) for each in self._eps)), shown),
            residual=spectrum.residual,
        )
        most = min(each for each in (T, M - 1, matrix.bound.centered) if each is not None)
        rank = replace(rank, high=max(rank.value, min(rank.high, most)))
        held = effective_rank(spectrum.centered, epsilon=1e-3, residual=spectrum.residual)
        return DifferenceRank(rank, most, held, spectrum.method)
