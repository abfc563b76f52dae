"""The likeliest tokens of each context with their log-probabilities, as servers and distillation sets give them."""

from __future__ import annotations

import copy
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.files import DAMAGE, open_file
from ..corpora.batches import IGNORED
from ..errors import Parameter, SourceError, first_line
from ..language_models.llama_cpp import MOST_TOKENS
from ..language_models.text import Names, Text
from ..spectrum import EPS
from ..spectrum.noise import decimal_step
from .answers import LEAST, Answer, Context, ceiling_of, context_of, read_answers
from .partial import FLOAT32, Part, PartialSource
from .probabilities import MISSED

AMBIGUOUS = "\N{REPLACEMENT CHARACTER}"
"""What a server writes for bytes that are a part of a character: tokens of such a text cannot be told apart."""
ROUNDED_UP = 1e-3
"""Largest logarithm of a probability, which rounding may put above 0."""
FLOAT32_SUM = 2.0**-24
"""Bound on the relative error of a float32 sum of positive numbers, for each of them (Higham 1993); llama.cpp's server
makes one over all tokens."""
NEIGHBOURS, STEADY = 16, 4.0
"""Different numbers to either side whose counts say how often a number occurs by chance, and the number of standard
deviations above that count at which it stands for something else."""
FEWEST, APART = 3, 10.0
"""The number of tokens that the likeliest ones must exceed, and the nats, beside twice the range of all others, by
which the lowest number lies below them if it stands for something else."""
WHOLE, CLEAR, SHARE = 1e-5, 30.0, 0.1
"""After a truncation: the most that the probabilities shown miss of 1, how many times that the least one of them is,
and the share of contexts where this holds. A model's own distribution does not end so."""


@final
class TopK(PartialSource):
    """Log-probabilities of each context's likeliest tokens.

    Tokens are columns by their ids. Where a server names tokens by their text alone, they are numbered as they appear,
    which is enough for a rank. What replaced a log-probability is unseen (`stand_ins`), and so is a text that several
    tokens share.

    Args:
        answers: the contexts, text by text.
        path: name of the source.

    Raises:
        SourceError: for numbers that cannot be token ids, or logarithms of probabilities.
    """

    def __init__(self, answers: Sequence[Answer], path: str) -> None:
        shown = [each for each in answers if each.contexts]
        self._answers = [(each.before, each.ids, [row is not None for row in each.contexts]) for each in shown]
        contexts = [context for answer in answers for context in answer.contexts if context is not None]
        names = [name for context in contexts for name in context.log_probs]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self._names, self._numbers = [*numbers], numbers
        self._columns = np.array([numbers[name] for name in names], np.int64)
        self._values = np.array([value for context in contexts for value in context.log_probs.values()], np.float64)
        self._rows: NDArray[np.int64] = np.repeat(
            np.arange(len(contexts)), [len(context.log_probs) for context in contexts]
        )
        self._ceilings = np.array([context.ceiling for context in contexts])
        self._is_by_text = np.array([context.is_by_text for context in contexts], bool)
        self._followed = [
            context.target if answer.ids is None else answer.ids[place]
            for answer in answers
            for place, context in enumerate(answer.contexts)
            if context is not None
        ]
        self.description = {"path": path, "kind": "top-k", "head": None, "corpus": None, "split": None}
        if len(shown) < len(answers):
            failed = f"{len(answers) - len(shown):,} of {len(answers):,} answers"
            self.description["note"] = f"left out {failed}, which show no token, as errors do"
        self.shape = (len(contexts), len(numbers))
        self._leave_out_unclear()
        if not self._values.size:
            raise SourceError(f"{path} holds no log-probability above {LEAST:g}: ask the server for logprobs")
        if (largest := float(self._values.max())) > ROUNDED_UP:
            raise SourceError(f"{path} holds {largest:.4g}, and the logarithm of a probability is at most 0")
        self._measure_rounding(self._values)
        count = self._values.size
        self._listed, self._is_whole = self._sums()
        likeliest = np.full(len(contexts), -np.inf)
        np.maximum.at(likeliest, self._rows, self._values)
        # A context that is repeated, as the beginnings of texts are, repeats all its numbers, up to roundoff.
        two = (nlargest(2, context.log_probs.items(), itemgetter(1)) for context in contexts)
        different = {(*(token for token, _ in each), round(each[0][1], 3)): row for row, each in enumerate(two) if each}
        replaced = stand_ins(self._values[np.isin(self._rows, [*different.values()])])
        self._leave_out(
            (np.isin(self._values, replaced) | self._stands_apart()) & (self._values < likeliest[self._rows])
        )
        if 2 * self._values.size > count:  # a few numbers do not tell
            self._measure_rounding(self._values)
        self.has_ids = not any(isinstance(self._names[number], str) for number in np.unique(self._columns))
        self.doubt = "" if self.has_ids else "if no two tokens have one text"
        if self.has_ids:
            self._number({})

    def _measure_rounding(self, numbers: NDArray[np.float64]) -> None:
        """Find the decimals, or the type, that all numbers were rounded to."""
        self._grid, values = decimal_step(numbers), torch.from_numpy(numbers)
        narrow = (n for n in ("bfloat16", "float16") if torch.equal(values.to(getattr(torch, n)).double(), values))
        self._eps = max(FLOAT32, *(EPS[name] / 2 for name in narrow), 0.0)

    def _leave_out_unclear(self) -> None:
        """Leave out masked tokens, and texts that several tokens share."""
        self._masked = np.bincount(self._rows[self._values <= LEAST], minlength=self.shape[0])
        shared = {*self._columns[np.isnan(self._values)].tolist()}
        unclear = [
            number
            for number, name in enumerate(self._names)
            if isinstance(name, str) and (not name or AMBIGUOUS in name or number in shared)
        ]
        self._leave_out(~(self._values > LEAST) | np.isin(self._columns, unclear))

    def _stands_apart(self) -> NDArray[np.bool_]:
        """Return whether each entry lies far below all others of its context, and is not the token that followed."""
        order, counts = np.lexsort((self._values, self._rows)), np.bincount(self._rows)
        last = np.cumsum(counts) - 1
        first = (last - counts + 1)[counts > FEWEST]
        lowest, second, most = (self._values[order[place]] for place in (first, first + 1, last[counts > FEWEST]))
        apart = np.zeros(len(order), bool)
        apart[order[first]] = second - lowest > np.maximum(APART, 2 * (most - second))
        return apart & (self._columns != self._targets()[self._rows])

    def _leave_out(self, entries: NDArray[np.bool_]) -> None:
        """Make entries unseen, so that any other token may be as likely."""
        by_text, self._ceilings = self._is_by_text[self._rows], self._ceilings.copy()
        most = np.where(by_text, self._before(entries), self._values) if by_text.any() else self._values
        more = entries & ((self._values > LEAST) | (by_text & np.isnan(self._values)))
        np.maximum.at(self._ceilings, self._rows[more], most[more])
        rest = ~entries
        self._rows, self._columns, self._values = self._rows[rest], self._columns[rest], self._values[rest]

    def _before(self, entries: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the most that the likeliest token of each entry's text can have, if these entries share their texts.

        It has the text's place, after that of the last other entry, where these are in order.
        """
        rows, values = self._rows, np.where(np.isnan(self._values), -np.inf, self._values)
        kept = ~entries & (self._columns != self._targets()[rows])
        some = np.flatnonzero(kept)
        rises = (np.diff(rows[some]) == 0) & (np.diff(values[some]) > 0)
        last = np.maximum.accumulate(np.where(kept, np.arange(len(rows)), -1))
        is_known = (last >= 0) & (rows[last] == rows) & ~np.isin(rows, rows[some[1:][rises]])
        return np.maximum(np.where(is_known, values[last], 0.0), values)

    def _targets(self) -> NDArray[np.int64]:
        """Return the numbers of the names of the tokens that followed, −1 for an unknown one."""
        return np.array([-1 if name is None else self._numbers.get(name, -1) for name in self._followed])

    def _number(self, ids: Mapping[str, int]) -> None:
        """Make ids the columns, given those of texts; leave out tokens whose id is not known."""
        names = [ids.get(name, -1) if isinstance(name, str) else name for name in self._names]
        followed = [ids.get(name) if isinstance(name, str) else name for name in self._followed[: self.shape[0]]]
        shown = [*(name for name in self._names if isinstance(name, int)), *(each for each in followed if each)]
        if wrong := [name for name in shown if not 0 <= name < MOST_TOKENS]:
            raise SourceError(
                f"{self.description['path']} names token {wrong[0]:,}: ids are from 0 to {MOST_TOKENS - 1:,} at most"
            )
        columns = np.array(names, np.int64)[self._columns]
        self._leave_out(columns < 0)
        self._columns = columns[columns >= 0]
        self.shape, self.has_ids = (self.shape[0], int(self._columns.max(initial=0)) + 1), True
        if {*followed} != {None}:
            self.targets = np.array([-1 if each is None else each for each in followed], np.int64)

    @property
    def step(self) -> float:
        """That of decimals, or of the type."""
        return max(self._grid, 2 * self._eps * float(np.abs(self._values).max()))

    def of_vocabulary(self, vocab: int, text: Text | None = None) -> Self:
        """Return this source with as many tokens, of which the additional ones are never seen.

        Args:
            vocab: number of tokens of a model.
            text: a text of that model, which tells the ids of tokens that are named by their text.

        Raises:
            SourceError: for names without ids, or distributions that were truncated.
        """
        path, whole = self.description["path"], copy.copy(self)
        if not self.has_ids:
            whole._number(ids_of(self._names, text.tokenizer, vocab) if text and text.tokenizer else {})
        if not whole._values.size:
            raise SourceError(
                f"{path} names tokens by their text, and a model's columns are ids: compare with a model that has its "
                "tokenizer, or ask the server for ids (return_tokens_as_token_ids of vLLM; llama.cpp's own completions "
                "have them)"
            )
        whole.shape = (self.shape[0], max(vocab, whole.shape[1]))
        whole._refuse_truncated()
        return whole

    def _sums(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the number of tokens that each context shows, and whether their probabilities end at a sum of 1."""
        T = len(self._ceilings)
        p, least = np.exp(self._values), np.ones(T)
        np.minimum.at(least, self._rows, p)
        off = self._grid / 2 + self._eps * np.abs(self._values)
        total = np.bincount(self._rows, p * np.exp(-off), T)
        if (wrong := total > 1 + MISSED).any():
            row = int(wrong.argmax())
            raise SourceError(
                f"{self.description['path']}: the probabilities of context {row} sum to {total[row]:.4g}, and those of "
                "all tokens sum to 1: leave out padding, or give natural logarithms of probabilities"
            )
        missed = np.maximum(WHOLE, np.bincount(self._rows, p * off, T))
        ends = (1 - np.bincount(self._rows, p, T) <= missed) & (least > CLEAR * missed)
        return np.bincount(self._rows, minlength=T), ends

    def _refuse_truncated(self) -> None:
        """Refuse distributions of which a server cut off the end: the rest was made to sum to 1."""
        ends = self._is_whole & (self._listed < self.shape[1])
        several = self._listed + self._masked > 1  # a single token may be certain
        if ends[several].mean() >= SHARE if several.any() else ends.all():
            raise SourceError(
                f"{self.description['path']} holds truncated distributions: in {ends.sum():,} of {len(ends):,} "
                "contexts the probabilities shown sum to 1, and other tokens have none. KL(P‖Q) needs the model's own "
                "distribution: ask the server with top_p=1, min_p=0, without top_k and a grammar, or for its raw "
                "log-probabilities (logprobs_mode=raw_logprobs of vLLM)"
            )

    def tokens(self) -> list[dict[str, Any]]:
        """Return the texts as batches of token ids, in which only contexts of this source have labels.

        Raises:
            SourceError: where the answers do not hold the ids of all their tokens.
        """
        texts = []
        for before, ids, is_context in self._answers:
            if before is None or ids is None or (not before and is_context[0]):
                raise SourceError(
                    f"{self.description['path']} does not hold the ids of all tokens before its contexts, so a model "
                    "cannot read them: ask the server for them (return_token_ids of vLLM, "
                    "logprob_start_len=0 of SGLang, decoder_input_details of text-generation-inference), or give the "
                    "same texts as ", Parameter("data"),
                )  # fmt: skip
            labels = np.where(is_context, ids, IGNORED)
            texts.append(
                {"input_ids": np.array([[*before, *ids]]), "labels": np.array([[*[IGNORED] * len(before), *labels]])}
            )
        return texts

    def parts(self, ranges: Iterable[range] | None = None) -> Iterator[Part]:
        """Yield the rows."""
        for rows in self.ranges() if ranges is None else ranges:
            log_probs = np.repeat(self._ceilings[rows.start : rows.stop, None], self.shape[1], 1)
            seen = np.zeros(log_probs.shape, bool)
            some = slice(*np.searchsorted(self._rows, [rows.start, rows.stop]))
            place = self._rows[some] - rows.start, self._columns[some]
            log_probs[place], seen[place] = self._values[some], True
            largest = np.abs(np.where(seen, log_probs, 0.0)).max(1, keepdims=True)
            error = self._grid / 2 + FLOAT32 + self._eps * largest
            yield Part(rows.start, log_probs, seen, error, self.shape[1] * FLOAT32_SUM)


def ids_of(names: Iterable[int | str], tokenizer: Names, vocab: int) -> dict[str, int]:
    """Return the ids of tokens by their text, for texts that a single token of a vocabulary has.

    Some servers leave out the space that a token begins with: if no name begins with one, either may be meant.
    """
    ids = [*range(vocab)]
    with_spaces = any(name.startswith(" ") and not name.isspace() for name in map(str, names))
    found: dict[str, set[int]] = {}
    for spelled in (tokenizer.spelled(ids), *([] if with_spaces else [tokenizer.names(ids)])):
        for token, name in zip(ids, spelled, strict=True):
            found.setdefault(name, set()).add(token)
    return {name: tokens.pop() for name, tokens in found.items() if len(tokens) == 1}


def stand_ins(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers that occur far more often than those near them, as a mask or a floor does, in ascending order.

    What rounding makes equal occurs about as often as its neighbours, and continuous numbers occur once.
    """
    numbers, counts = np.unique(values, return_counts=True)
    replaced = np.zeros(len(numbers), bool)
    while True:
        usual = np.where(replaced, 1, counts)
        total = np.concatenate([[0], np.cumsum(usual)])
        place = np.arange(len(numbers))
        first, last = np.maximum(place - NEIGHBOURS, 0), np.minimum(place + NEIGHBOURS + 1, len(numbers))
        mean = (total[last] - total[first] - usual) / np.maximum(last - first - 1, 1)
        around = np.pad(usual, 2, constant_values=1)
        near = np.sort([around[shift : shift + len(numbers)] for shift in (0, 1, 3, 4)], 0)[-2]
        expected = np.maximum(np.maximum(mean, near), 1)
        more = counts > expected + STEADY * np.sqrt(expected - 1) + 0.5
        if not (more & ~replaced).any():
            return numbers[replaced]
        replaced |= more


def open_answers(path: str) -> TopK:
    """Open a file of a server's answers."""
    return TopK(read_answers(path), path)


def open_parquet(path: str) -> TopK:
    """Open a distillation set; `SourceError` for one that does not hold log-probabilities."""
    import pyarrow.parquet

    try:
        names = [*_columns(path), *({TARGET} & {*pyarrow.parquet.read_schema(path).names})]  # as `dump` writes it
        columns = [pyarrow.parquet.read_table(path, columns=[name])[name].to_pylist() for name in names]
        rows = [row for row in zip(*columns, strict=True) if None not in row[:2]]
        if any(isinstance(ids, list) and isinstance(next(iter(ids), 0), list | None) for ids, *_ in rows):
            rows = [pair for row in rows for pair in zip(*row[:2], strict=True) if None not in pair]
        return TopK([Answer(None, [_context(*row) for row in rows], None)], path)
    except DAMAGE as error:
        raise SourceError(
            f"{path} does not hold a list of token_ids and one of as many log_probs for each context "
            f"({first_line(error)})"
        ) from error


def _context(ids: Sequence[int], values: Sequence[float | None], target: int | None = None) -> Context:
    """Return the context of a row, whose padding is null, NaN or −∞."""
    pairs = [(name, value) for name, value in zip(ids, values, strict=True) if value is not None and value > -math.inf]
    target = None if target is None or target < 0 else target
    return context_of(pairs, ceiling_of(pairs, target), target)


COLUMNS = "token_ids", "log_probs"
"""List columns of a distillation set, whose names are others where it has only one pair of them."""
TARGET = "target"
"""Column of the token that followed each context, −1 where it is not known."""
LISTS = re.compile(r"((?:(?:large_|fixed_size_)?list<\w+: )+)(u?int\d+|halffloat|float|double)(?: not null)?(?:>.*)+")
FLOATS = "halffloat", "float", "double"
"""Types of columns with a list, or a list of lists, in a row, as Arrow writes them."""


def _columns(path: str) -> Sequence[str]:
    """Return the names of the list columns of ids and of log-probabilities, the most deeply nested ones.

    Raises:
        SourceError: if several columns may be meant.
    """
    import pyarrow.parquet

    with open_file(Path(path)) as file:
        schema = pyarrow.parquet.read_schema(file)
    if set(COLUMNS) <= set(schema.names):
        return COLUMNS
    found: dict[int, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for field in schema:
        if match := LISTS.fullmatch(str(field.type)):
            found[match[1].count("list")][match[2] in FLOATS].append(field.name)
    pairs = {depth: pair for depth, pair in found.items() if all(pair)}
    if not pairs:
        return ()
    ids, values = pairs[max(pairs)]
    if len(ids) + len(values) > 2:
        raise SourceError(
            f"{path} has several list columns: ids may be {' or '.join(ids)}, and log-probabilities "
            f"{' or '.join(values)}; name them {' and '.join(COLUMNS)}"
        )
    return ids[0], values[0]


def has_columns(path: str) -> bool:
    """Return whether a file is a distillation set: whether its columns hold lists."""
    if not path.lower().endswith(".parquet"):
        return False
    try:
        return bool(_columns(path))
    except (ImportError, OSError, ValueError):  # the reader of matrices says why
        return False
