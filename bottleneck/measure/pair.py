"""A reference and a model, read block by block: what is collected of them and what it gives."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ..errors import MatrixError, SourceError
from ..language_models.source import begin_texts, text_of
from ..results.quantity import doubts_of
from ..sources import Block, KldSource, Part, PartialSource, Source
from ..spectrum import SpectrumSettings
from ..spectrum.replaced import MASK
from .alignment import misalignment
from .comparison import Comparison, Example, Prediction
from .difference import ObservedDifference
from .divergences import (
    LLAMA_CPP_LEAST,
    ByContext,
    Distributions,
    Matrix,
    Values,
    divergences,
    normalized,
    rounded,
    statistics,
)
from .intervals import interval_divergences
from .pairwise_kld import CACHED, looks_rounded
from .standard_errors import Sampling, held_by_one

REPEATED = 0.1
"""Share of the contexts that repeat others from which that is a note."""
SAMPLED = 4096
"""Most entries of a row by which equal ones are told."""
PREDICTIONS = 5
"""Number of likeliest tokens shown for each model, as in table 14 of Yang et al. 2018."""
CONTEXT_TOKENS = 30
"""Number of tokens shown before the target."""
SENTENCE_TOKENS = 60
"""Largest number of tokens shown of the target's sentence, to either side; a text without lines is one sentence."""
DEPENDENT = "kl", "nll", "log_ratio", "same_top", "tv"
"""Quantities whose longest dependence on the contexts nearby standard errors allow for."""
WEIGHTS = "model*.safetensors", "pytorch_model*.bin"
"""Names of files of weights in a folder, in the order in which transformers looks for them."""
Ids = NDArray[np.int64]


class Pair:
    """What is collected of a reference and a model, block by block."""

    def __init__(
        self, reference: Source, model: Source, targets: Ids | None, examples: int, *, temperature: float, floor: bool
    ) -> None:
        self._sources, self._targets, self._examples = (reference, model), targets, examples
        self._temperature, self._floor = temperature, floor
        self._is_partial = isinstance(reference, PartialSource)
        self._vocab = min(reference.shape[1], model.shape[1])
        if self._is_partial and self._vocab < reference.shape[1]:
            one, other = (source.name for source in self._sources)
            raise SourceError(
                f"{other} has {model.shape[1]:,} tokens, and {one} has {reference.shape[1]:,}: give a model with as "
                "many, or more"
            )
        precisions = [each.rows_precision for each in self._sources if not isinstance(each, PartialSource)]
        self._eps = [replace(eps, size=eps.size and eps.size / temperature) for eps in precisions]
        self._found: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
        self._cut = np.zeros(2)
        self._left_out = np.zeros((2, self._vocab), dtype=np.int64)
        self._difference = None if self._is_partial else ObservedDifference(self._sources, precisions, self._vocab)
        self._best: tuple[list[Example], list[Example]] = ([], [])
        self._misalignment: str | None = None
        self.rows: list[int] = []
        """A hash of both sources' numbers in each context, equal in contexts that repeat others."""

    @property
    def cut(self) -> float:
        """Mean probability of the tokens that only one of the two has, the larger of both."""
        return float(self._cut.max() / self._sources[0].shape[0])

    @property
    def doubt(self) -> str:
        """Why the numbers may not be those of the models on one text, or an empty text."""
        if self._misalignment:
            return "the contexts or the tokens of the two look to be in different orders"
        return "numbers of other tokens are left out in each context" if any(map(self._truncates, range(2))) else ""

    def _truncates(self, place: int) -> bool:
        """Return whether one of the two leaves out a token in some contexts and not in others."""
        count = self._left_out[place]
        return bool(((count > 0) & (count < self._sources[0].shape[0])).any())

    def add(self, first: Block | Part, second: Block) -> None:
        """Take the same rows of both sources."""
        at_once, some = max(1, CACHED // self._vocab), slice(None, None, max(1, self._vocab // SAMPLED))
        if self._misalignment is None:
            self._misalignment = self._order_of_first(first, second)
        both = [each.log_probs[:, : self._vocab] for each in (first, second)]
        masked = np.any([(each[:, some] < each.max(1, keepdims=True) + MASK).any(1) for each in both], 0)
        self.rows += [
            hash(tuple(row[None if whole else some].tobytes() for row in rows))
            for whole, *rows in zip(masked, *both, strict=True)
        ]
        for place, each in enumerate((first, second)):
            if each.log_probs.shape[1] > self._vocab:
                p = softmax(each.log_probs.astype(np.float64) / self._temperature, 1)
                self._cut[place] += p[:, self._vocab :].sum()
        for place in range(0, len(second.log_probs), at_once):
            for name, values in self._add(first, second, slice(place, place + at_once)).items():
                self._found[name].append(values)

    def _order_of_first(self, first: Block | Part, second: Block) -> str:
        """Say whether the rows or columns of the first block look to be in another order in the other source."""
        P = np.where(first.seen, first.log_probs, -np.inf) if isinstance(first, Part) else first.log_probs
        return misalignment(P[:, : self._vocab], second.log_probs[:, : self._vocab])

    def _add(self, first: Block | Part, second: Block, some: slice) -> dict[str, Values]:
        start, entries = second.start + some.start, [each.log_probs[some, : self._vocab] for each in (first, second)]
        if self._difference:  # whose rank is that of every temperature
            self._left_out += [(each < each.max(1, keepdims=True) + MASK).sum(0) for each in entries]
            self._difference.watch(start, entries)
        if self._temperature != 1:
            entries = [each / self._temperature for each in entries]
        targets = None if self._targets is None else self._targets[start : start + len(entries[1])]
        if not isinstance(first, Part):
            return self._add_whole(start, entries, targets)
        return self._add_part(first.rows(some), entries[1], targets)

    def _add_part(self, part: Part, entries: Matrix, targets: Ids | None) -> dict[str, Values]:
        is_llama_cpp = isinstance(self._sources[0], KldSource)
        found = interval_divergences(part, normalized(entries, self._eps[0]), targets, is_llama_cpp=is_llama_cpp)
        if targets is not None:
            self._sources[1].check_losses(found["nll"][0], part.start)
        return found

    def _add_whole(self, start: int, entries: Sequence[Matrix], targets: Ids | None) -> dict[str, Values]:
        P, Q = (normalized(each, eps) for each, eps in zip(entries, self._eps, strict=True))
        found = divergences(P, Q, targets)
        if self._floor:
            found["kl_floor"] = divergences(P, normalized(rounded(entries[0], self._eps[0]), self._eps[0]))["kl"]
        if targets is not None:
            losses = np.stack([found["reference_nll"][0], found["nll"][0]])
            self._keep_examples(start, P, Q, losses, found["log_ratio"][1])
        return found

    def _keep_examples(self, start: int, P: Distributions, Q: Distributions, nll: Matrix, roundoff: Values) -> None:
        for source, losses in zip(self._sources, nll, strict=True):
            source.check_losses(losses, start)
        for best, margins in zip(self._best, (nll[1] - nll[0], nll[0] - nll[1]), strict=True):
            for index in np.argsort(-margins, kind="stable")[: self._examples].tolist():
                least = abs(best[-1].margin) if len(best) == self._examples else 0.0
                if margins[index] > max(least, roundoff[index]):
                    first, second = nll[:, index].tolist()
                    best.append(self._example(start + index, (first, second), (P.p[index], Q.p[index])))
                    best.sort(key=lambda each: (-abs(each.margin), each.row))
                    del best[self._examples :]

    def _example(self, row: int, nll: tuple[float, float], p: tuple[Values, Values]) -> Example:
        """Return a context with its text, and each model's likeliest tokens."""
        assert self._targets is not None
        text = text_of(self._sources)
        names = text.names if text else lambda ids: [f"<{token}>" for token in ids]
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

    def comparison(self, how: SpectrumSettings, first: Ids, *, like_llama_cpp: bool) -> Comparison:
        """Return the comparison, with the rank of the difference, which takes all entries and a pass of its own.

        ``first`` is that of `Sampling.of`.
        """
        reference, model = self._sources
        joined = {name: np.concatenate(parts, 1) for name, parts in self._found.items()}
        text = text_of(self._sources)
        series, each_one = [joined[name][0] for name in DEPENDENT if name in joined], np.arange(reference.shape[0])
        sampling = Sampling.of(series, begin_texts(self._sources), first)
        if like_llama_cpp:
            sampling = Sampling(each_one, each_one, *3 * (len(each_one),))
        found = {
            name: ByContext(each[0, sampling.order], each[1, sampling.order], self._is_partial, sampling.starts)
            for name, each in joined.items()
        }
        if like_llama_cpp and "kl_llama_cpp" not in found:
            raise SourceError(
                f"{reference.name} does not show all tokens above e^{LLAMA_CPP_LEAST:.0f}, which "
                "llama.cpp's KL sums over: leave out --like-llama-cpp"
            )
        notes = self._notes(found, like_llama_cpp=like_llama_cpp)
        if (copies := reference.shape[0] - sampling.different) > REPEATED * reference.shape[0]:
            notes.append(
                f"{copies:,} of {reference.shape[0]:,} contexts repeat others, and all tell as much as "
                f"{sampling.effective:,} without copies"
            )
        difference = None
        try:
            difference = self._difference.rank(how) if self._difference else None
        except MatrixError as error:
            notes.append(f"the rank of the difference is not known: {error}")
        kl = joined["kl_llama_cpp" if like_llama_cpp else "kl"]
        losses = [float(found[name].values.mean()) for name in ("reference_nll", "nll") if name in found]
        return Comparison(
            sources=(dict(reference.description), {**model.description, **_bytes(model.description)}),
            contexts=reference.shape[0],
            blocks=sampling.blocks,
            bytes=text.bytes_of(np.ones(reference.shape[0], bool)) if text is not None else None,
            nll=(losses[0], losses[1]) if len(losses) == 2 else None,
            first_better=tuple(self._best[0]),
            second_better=tuple(self._best[1]),
            vocab=self._vocab,
            statistics=statistics(found, like_llama_cpp=like_llama_cpp),
            difference=difference,
            definitions="llama.cpp" if like_llama_cpp else "exact",
            notes=tuple(notes),
            different=sampling.effective,
            by_context={"kl": kl[0], "roundoff": kl[1], "entropy": joined["entropy"][0]},
        )

    def _notes(self, found: dict[str, ByContext], *, like_llama_cpp: bool) -> list[str]:
        """Return a sentence for all that is left out or looks rounded; losses of unseen targets leave ``found``."""
        reference = self._sources[0]
        notes = [self._misalignment] if self._misalignment else []
        notes += [
            f"cut to the first {self._vocab:,} tokens, which both have, and renormalized; the others hold "
            f"{cut / source.shape[0]:.2g} of the probability of {source.name}"
            for cut, source in zip(self._cut, self._sources, strict=True)
            if source.shape[1] > self._vocab
        ]
        for place, source in enumerate(self._sources):
            if self._truncates(place):
                share = 100 * self._left_out[place].sum() / (reference.shape[0] * self._vocab)
                notes.append(
                    f"{source.name} leaves out {share:.3g} % of its numbers (-inf or a mask), other "
                    "tokens in each context, as truncations do (top-k, top-p): this compares what they left, not the "
                    "model's own distributions"
                )
        if self._temperature != 1:
            notes.append(f"both at temperature {self._temperature:g}")
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
        kl = found["kl_llama_cpp" if like_llama_cpp else "kl"].values
        if share := held_by_one(kl.max(), kl.mean(), len(kl)):
            notes.append(f"one context holds {100 * share:.0f} % of KL, whose interval may then end too low")
        doubts = ((source.name, doubts_of(source.description)) for source in self._sources)
        return notes + [f"{name}: {doubt}" for name, doubt in doubts if doubt]


def _bytes(description: Mapping[str, Any]) -> dict[str, int]:
    """Return the size of a model's weights on disk, if it is a model in a file or folder."""
    path = Path(str(description["path"]))
    if description["kind"] not in ("run", "hugging-face") or not path.exists():
        return {}
    files = [path] if path.is_file() else next(filter(None, (list(path.glob(each)) for each in WEIGHTS)), [])
    return {"bytes": sum(each.stat().st_size for each in files)}


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
