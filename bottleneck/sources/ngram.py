"""An n-gram model of a corpus, counted when it is opened: ``kn5:ptb``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, final

import numpy as np

from .. import corpora
from ..errors import SourceError
from ..heads import RankBound
from ..language_models import Text
from ..language_models.ngram import KneserNey, histories
from ..language_models.source import Block, Source
from ..spectrum import Precision, precision

NAME = re.compile(r"kn(?P<order>[1-9]):(?P<corpus>.+)")


@final
class NGramSource(Source):
    """The log-probabilities of an interpolated modified Kneser–Ney model for every token of a split but the first.

    Args:
        name: ``kn5:CORPUS``, where 5 is the order and the training split of CORPUS is counted.
        data: another corpus or text, see `corpora.read_data`; its tokens must be in the vocabulary of CORPUS.
        split: ``"train"``, ``"valid"`` or ``"test"``.

    Raises:
        CorpusError: when a corpus is missing or has a token outside the vocabulary.
    """

    def __init__(self, name: str, *, data: Any = None, split: str = "test") -> None:
        match = NAME.fullmatch(name)
        assert match is not None, "find() gives only such names"
        corpus = corpora.load(match["corpus"])
        text = corpus if data is None else corpora.read_data(data, vocabulary=corpus.vocabulary, split=split)
        ids = text.split(split).astype(np.int64)
        starts = np.zeros(1, np.int64) if text.starts is None else text.starts
        self.text = Text(ids=ids, starts=starts, tokenizer=corpus.vocabulary)
        if not len(self.text.places):
            raise SourceError(f"{text.name} has no context: give a text of at least two tokens")
        order = int(match["order"])
        pasts = [
            histories(ids[first : stop - 1], order) for first, stop in pairwise([*starts, len(ids)]) if stop - first > 1
        ]
        self._past = pasts[0] if len(pasts) == 1 else np.concatenate(pasts)
        self._model = KneserNey.fit(corpus.split("train"), order=order, vocab_size=len(corpus.vocabulary))
        self.targets = ids[self.text.places]
        self.shape = (len(self.targets), len(corpus.vocabulary))
        self.embedding_size, self.dtype = None, "float64"
        self.bound = RankBound(None, None, "an n-gram model has no rank bound below min(T, M)")
        self.identity = {"model": f"kn{order} {corpus.sha256}", "corpus": text.sha256}
        self.description = {"path": name, "kind": "ngram", "head": f"kn{order}", "corpus": text.name, "split": split}

    @property
    def precision(self) -> Precision:
        """The precision of float64."""
        return precision("float64")

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield log P of ranges of contexts."""
        for rows in self.ranges() if ranges is None else ranges:
            yield Block(rows.start, self._model.log_prob(self._past[rows.start : rows.stop]))
