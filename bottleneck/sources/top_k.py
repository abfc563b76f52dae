"""The likeliest tokens of each context with their log-probabilities, as servers and distillation sets give them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Self, final

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.files import DAMAGE, exists, open_file
from ..errors import Parameter, SourceError, first_line
from ..spectrum import EPS
from .opening import Kind
from .partial import FLOAT32, Part, PartialSource

ID = "token_id:"
"""What vLLM puts before an id with ``return_tokens_as_token_ids``."""
AMBIGUOUS = "\N{REPLACEMENT CHARACTER}"
"""What a server writes for bytes that are a part of a character: tokens of such a text cannot be told apart."""
MISSING = -1e3
"""Log-probability below which a number stands for a missing one, as OpenAI's −9999 does."""
MOST_TOKENS = 1 << 24
"""Number of tokens that no vocabulary has: a larger id is damage, and would be a column."""
ROUNDED_UP = 1e-3
"""Largest logarithm of a probability, which rounding may put above 0."""
DECIMALS = 7
"""Most decimals that a server may have rounded to; float32 has more."""
FLOAT32_SUM = 2.0**-24
"""Bound on the relative error of a float32 sum of positive numbers, for each of them (Higham 1993); llama.cpp's server
makes one over all tokens."""


class Context(NamedTuple):
    """What is known of one context."""

    known: dict[int | str, float]
    """Log-probabilities by token, an id or its text."""
    ceiling: float
    """The most that another token's can be."""
    target: int | str | None
    """The token that followed."""


@final
class TopK(PartialSource):
    """Log-probabilities of each context's likeliest tokens.

    Tokens are columns by their ids. Where a server names tokens by their text alone, they are numbered as they appear,
    which is enough for a rank.

    Args:
        contexts: the contexts.
        path: name of the source.

    Raises:
        SourceError: for numbers that cannot be token ids, or logarithms of probabilities.
    """

    def __init__(self, contexts: Sequence[Context], path: str) -> None:
        shown = ({name: value for name, value in each.known.items() if value > MISSING} for each in contexts)
        contexts = [
            each._replace(known={name: value for name, value in known.items() if AMBIGUOUS not in str(name)})
            for each, known in zip(contexts, shown, strict=True)
        ]
        names = [token for context in contexts for token in context.known]
        if not names:
            raise SourceError(f"{path} holds no log-probability above {MISSING:g}: ask the server for logprobs")
        self.has_ids = not any(isinstance(token, str) for token in names)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self._tokens = np.array(names if self.has_ids else [numbers[name] for name in names], np.int64)
        self._values = np.array([value for context in contexts for value in context.known.values()])
        if self.has_ids and not 0 <= self._tokens.min() <= self._tokens.max() < MOST_TOKENS:
            wrong = next(token for token in names if not 0 <= int(token) < MOST_TOKENS)
            raise SourceError(f"{path} names token {wrong:,}: ids are from 0 to {MOST_TOKENS - 1:,} at most")
        if (largest := float(self._values.max())) > ROUNDED_UP:
            raise SourceError(f"{path} holds {largest:.4g}, and the logarithm of a probability is at most 0")
        self._ceilings = np.array([context.ceiling for context in contexts])
        self._starts = [0, *accumulate(len(context.known) for context in contexts)]
        self._grid = decimal_step(self._values)
        values = torch.from_numpy(self._values)
        narrow = (n for n in ("bfloat16", "float16") if torch.equal(values.to(getattr(torch, n)).double(), values))
        self._eps = max(FLOAT32, *(EPS[name] / 2 for name in narrow), 0.0)
        self.shape = (len(contexts), int(self._tokens.max()) + 1)
        targets = [context.target for context in contexts]
        if self.has_ids and all(isinstance(target, int) for target in targets):
            self.targets = np.array(targets, np.int64)
        self.description = {"path": path, "kind": "top-k", "head": None, "corpus": None, "split": None}

    @property
    def step(self) -> float:
        """That of decimals, or of the type."""
        return max(self._grid, 2 * self._eps * float(np.abs(self._values).max()))

    def of_vocabulary(self, vocab: int) -> Self:
        """Return this source with as many tokens, of which the additional ones are never seen.

        Raises:
            SourceError: where the server names tokens by their text.
        """
        if not self.has_ids:
            raise SourceError(
                f"{self.description['path']} names tokens by their text, and a model's columns are ids: ask the server "
                "for ids (return_tokens_as_token_ids of vLLM; llama.cpp's own completions have them)"
            )
        whole = copy.copy(self)
        whole.shape = (self.shape[0], max(vocab, self.shape[1]))
        return whole

    def parts(self, ranges: Iterable[range] | None = None) -> Iterator[Part]:
        """Yield the rows."""
        for rows in self.ranges() if ranges is None else ranges:
            log_probs = np.repeat(self._ceilings[rows.start : rows.stop, None], self.shape[1], 1)
            seen = np.zeros(log_probs.shape, bool)
            some = slice(self._starts[rows.start], self._starts[rows.stop])
            row = np.repeat(np.arange(len(rows)), np.diff(self._starts[rows.start : rows.stop + 1]))
            log_probs[row, self._tokens[some]] = self._values[some]
            seen[row, self._tokens[some]] = True
            largest = np.abs(np.where(seen, log_probs, 0.0)).max(1, keepdims=True)
            error = self._grid / 2 + FLOAT32 + self._eps * largest
            yield Part(rows.start, log_probs, seen, error, self.shape[1] * FLOAT32_SUM)


def decimal_step(values: NDArray[np.floating]) -> float:
    """Return the step of the decimals that all numbers were rounded to, in float32 or before it; 0 if they were not."""
    single = values.astype(np.float32)
    rounded = (n for n in range(DECIMALS) if np.array_equal(np.round(values, n).astype(np.float32), single))
    return float(10.0 ** -next(rounded, np.inf))


def _contexts(record: Any) -> Iterator[Context]:
    """Yield the contexts in a server's answer: those of the OpenAI, vLLM and llama.cpp forms, at any depth."""
    if isinstance(record, list):
        for each in record:
            yield from _contexts(each)
    if not isinstance(record, Mapping):
        return
    if "top_probs" in record:
        raise ValueError("it holds probabilities after sampling: ask with post_sampling_probs false")
    ids = record.get("prompt_token_ids") or []
    for place, tokens in enumerate(record.get("prompt_logprobs") or []):
        if tokens:  # vLLM's dictionaries by id, in which the token that followed stands as well
            named: dict[int | str, float] = {int(token): each["logprob"] for token, each in tokens.items()}
            ranks = sorted(each["rank"] for each in tokens.values())
            count = sum(rank == number for number, rank in enumerate(ranks, 1))
            likeliest = [each["logprob"] for each in tokens.values() if each["rank"] <= count]
            yield Context(named, _least(likeliest), ids[place] if place < len(ids) else None)
    if isinstance(record.get("top_logprobs"), list):
        if "logprob" in record:
            top = {_token(each): each["logprob"] for each in record["top_logprobs"]}
            token = _token(record)
            yield Context({**top, token: record["logprob"]}, _least(top.values()), token)
        else:  # OpenAI's older form: dictionaries by token
            parts = (record[key] for key in ("tokens", "token_logprobs", "top_logprobs"))
            for token, value, top in zip(*parts, strict=True):
                if top:
                    known = {_token({"token": name}): each for name, each in {**top, token: value}.items()}
                    yield Context(known, _least(top.values()), _token({"token": token}))
        return
    for key in ("choices", "logprobs", "content", "completion_probabilities"):
        yield from _contexts(record.get(key))


def _least(likeliest: Iterable[float]) -> float:
    """Return the most that a token can have which is not among the likeliest."""
    return min((value for value in likeliest if value > MISSING), default=0.0)


def _token(each: Mapping[str, Any]) -> int | str:
    """Return a token's id if the server gives it, otherwise its text, from bytes where it ends within a character."""
    name = each["token"]
    if "id" in each or name.startswith(ID):
        return int(each.get("id", name.removeprefix(ID)))
    return bytes(each["bytes"]).decode(errors="surrogateescape") if each.get("bytes") else str(name)


def _json_lines(path: str) -> TopK:
    try:
        with open_file(Path(path)) as file:
            records = [json.loads(line) for line in file if line.strip()]
        if contexts := [context for record in records for context in _contexts(record)]:
            return TopK(contexts, path)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    except DAMAGE as error:
        raise SourceError(
            f"{path} does not hold a server's answers with log-probabilities, one JSON object in a line "
            f"({type(error).__name__}: {first_line(error)})"
        ) from error
    raise SourceError(f"{path} is a text, not a model: name a model, and give the text with ", Parameter("data"))


def _parquet(path: str) -> TopK:
    import pyarrow.parquet

    columns = pyarrow.parquet.read_table(path, columns=list(COLUMNS)).to_pydict()
    pairs = zip(*(columns[name] for name in COLUMNS), strict=True)
    try:
        return TopK([Context(dict(zip(ids, values, strict=True)), _least(values), None) for ids, values in pairs], path)
    except DAMAGE as error:
        raise SourceError(
            f"{path} does not hold a list of token_ids and one of as many log_probs for each context "
            f"({first_line(error)})"
        ) from error


COLUMNS = "token_ids", "log_probs"
"""List columns of a distillation set."""


def _has_columns(source: Any) -> bool:
    if not isinstance(source, str) or not source.lower().endswith(".parquet"):
        return False
    try:
        import pyarrow.parquet

        with open_file(Path(source)) as file:
            return set(COLUMNS) <= set(pyarrow.parquet.read_schema(file).names)
    except (ImportError, OSError, ValueError):  # the reader of matrices says why
        return False


JSON_LINES = Kind(
    what="a file of a server's answers",
    matches=lambda source: isinstance(source, str) and source.endswith(".jsonl") and exists(Path(source)),
    open=_json_lines,
)
PARQUET = Kind(what="a distillation set", matches=_has_columns, open=_parquet)
