"""Compare a model with a reference of which a part of each distribution is unseen."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..errors import SourceError
from ..sources import Block, KldSource, Part, PartialSource, Source
from .comparison import Comparison
from .computing import SpectrumSettings
from .divergences import LLAMA_CPP_LEAST, ByContext, normalized, statistics
from .intervals import interval_divergences
from .pairwise_kld import CACHED
from .source_kld import source_precision

TARGETS = "reference_nll", "log_ratio"
"""Quantities that are unknown where the reference does not show the probability of a token that follows."""


class PartialPair:
    """What is collected of such a reference and a model, block by block, as `Pair` does of whole distributions."""

    def __init__(self, reference: PartialSource, model: Source, targets: NDArray[np.int64] | None) -> None:
        paths = [str(each.description["path"]) for each in (reference, model)]
        self._vocab = reference.shape[1]
        if model.shape[1] < self._vocab:
            raise SourceError(
                f"{paths[1]} has {model.shape[1]:,} tokens, and {paths[0]} has {self._vocab:,}: give a model with as "
                "many, or more"
            )
        self._sources, self._targets, self._eps = (reference, model), targets, source_precision(model)
        self._found: dict[str, list[NDArray[np.float64]]] = {}
        self._cut = 0.0

    def add(self, part: Part, block: Block) -> None:
        """Take the same rows of both sources."""
        rows = max(1, CACHED // self._vocab)
        for first in range(0, len(part.seen), rows):
            some = slice(first, first + rows)
            entries = block.log_probs[some]
            self._cut += float(np.exp(entries[:, self._vocab :], dtype=np.float64).sum())
            Q, number = normalized(entries[:, : self._vocab], self._eps), part.start + first
            targets = None if self._targets is None else self._targets[number : number + len(entries)]
            log_probs, seen, error = part.log_probs[some], part.seen[some], part.error[some]
            some_part = Part(number, log_probs, seen, error, part.shift)
            is_llama_cpp = isinstance(self._sources[0], KldSource)
            found = interval_divergences(some_part, Q, targets, is_llama_cpp=is_llama_cpp)
            for name, values in found.items():
                self._found.setdefault(name, []).append(values)
            if targets is not None:
                self._sources[1].check_losses(found["nll"][0], number)

    def comparison(self, how: SpectrumSettings, *, like_llama_cpp: bool) -> Comparison:
        """Return the comparison; the rank of the difference needs all entries."""
        found = {name: ByContext(*np.concatenate(parts, 1)) for name, parts in self._found.items()}
        reference, model = self._sources
        if like_llama_cpp and "kl_llama_cpp" not in found:
            raise SourceError(
                f"{reference.description['path']} does not show all tokens above e^{LLAMA_CPP_LEAST:.0f}, which "
                "llama.cpp's KL sums over: leave out --like-llama-cpp"
            )
        notes = [
            f"KL leaves out tokens below e^{LLAMA_CPP_LEAST:.0f} in P, as llama.cpp does"
            if like_llama_cpp
            else "intervals hold every distribution that the reference's numbers allow; KL(Q‖P) has no upper bound"
        ]
        if model.shape[1] > self._vocab:
            notes.append(
                f"{model.description['path']} is cut to the first {self._vocab:,} tokens and renormalized; the others "
                f"hold {self._cut / model.shape[0]:.2g} of its probability"
            )
        if self._targets is None:
            notes.append("which tokens follow is unknown, so columns that need them are missing")
        elif (is_unseen := np.isinf(found["reference_nll"].error)).any():
            least = math.exp(found["reference_nll"].values.mean())
            notes.append(
                f"the reference does not show the probability of {is_unseen.sum():,} of {reference.shape[0]:,} tokens "
                f"that follow: its perplexity is about {least:.4g} or more"
            )
            losses = {name: found.pop(name) for name in TARGETS}
            if like_llama_cpp:  # which takes the probability at the floor
                errors = {name: np.where(is_unseen, 0.0, each.error) for name, each in losses.items()}
                found |= {name: ByContext(each.values, errors[name]) for name, each in losses.items()}
        nll = [float(found[name].values.mean()) for name in ("reference_nll", "nll") if name in found]
        return Comparison(
            sources=(dict(reference.description), dict(model.description)),
            contexts=reference.shape[0],
            nll=(nll[0], nll[1]) if len(nll) == 2 else None,
            first_better=(),
            second_better=(),
            vocab=self._vocab,
            statistics=statistics(found, like_llama_cpp=like_llama_cpp),
            definitions="llama.cpp" if like_llama_cpp else "exact",
            notes=tuple(notes),
            by_context={
                "kl": found["kl_llama_cpp" if like_llama_cpp else "kl"].values,
                "entropy": found["entropy"].values,
            },
        )
