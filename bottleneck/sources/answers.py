"""Servers' answers with the likeliest tokens of each context: a table of their forms, and how all of them are read."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from ..core.files import DAMAGE, open_file
from ..core.json_file import LARGEST, json_values, parse_json
from ..errors import Parameter, SourceError, first_line


class Form(NamedTuple):
    """Where the answers of a server show the likeliest tokens of each context."""

    rows: str
    """Key of a list with an entry for each token of a text."""
    entries: str
    """Key of the likeliest tokens in such an entry; empty where the entry is nothing else."""
    followed: str
    """Key of the list of the tokens themselves, beside `rows`; empty where each entry is the token as well."""

    @property
    def is_by_id(self) -> bool:
        """Whether the keys of an entry that is a dictionary are ids, and not texts."""
        return self.followed.endswith("_ids")


FORMS = (
    Form("prompt_logprobs", "", "prompt_token_ids"),  # vLLM
    Form("logprobs", "", "token_ids"),  # vLLM's RequestOutput
    Form("input_top_logprobs", "", "input_token_logprobs"),  # SGLang
    Form("output_top_logprobs", "", "output_token_logprobs"),
    Form("top_tokens", "", "tokens"),  # text-generation-inference
    Form("topCandidates", "candidates", "chosenCandidates"),  # Gemini
    Form("top_logprobs", "", "tokens"),  # OpenAI's completions
    Form("content", "top_logprobs", ""),  # OpenAI's chat completions
    Form("refusal", "top_logprobs", ""),
    Form("logprobs", "top_logprobs", ""),  # OpenAI's responses, Ollama
    Form("completion_probabilities", "top_logprobs", ""),  # llama.cpp
)
BEFORE = "prompt_token_ids", "prefill", "input_token_logprobs"
"""Keys of the tokens before those that a server generated."""
GENERATED = "token_ids", "tokens"
"""Keys of the ids that a server generated, around rows that name tokens by their text."""
IDS, TEXTS, VALUES = ("id", "token_id", "tokenId"), ("token", "text", "decoded_token"), ("logprob", "logProbability")
"""Keys of a token's id, text and log-probability; a list holds log-probability, id and text."""
ID = "token_id:"
"""What vLLM puts before an id with ``return_tokens_as_token_ids``."""
REQUESTS = {
    "meta_info": "return_logprob=true and top_logprobs_num=20 of SGLang",
    "generated_text": "details=true and top_n_tokens=5 of text-generation-inference",
    "generation_settings": "n_probs=20 of llama.cpp",
    "incomplete_details": "include=['message.output_text.logprobs'] and top_logprobs=20 of OpenAI's responses",
    "candidates": "responseLogprobs=true and logprobs=20 of Gemini",
    "eval_count": "logprobs=true and top_logprobs=20 of Ollama",
    "outputs": "logprobs=20 or prompt_logprobs=20 of vLLM",
    "choices": "logprobs=true and top_logprobs=20 of chat completions, or logprobs=5 of completions",
}
"""What a request asks for the likeliest tokens with, by a key of the server's answers."""
EMPTY = {"details", "logprobs", "top_logprobs", *(form.rows for form in FORMS if form.rows != "content")}
"""Keys whose values are null or empty where a request did not ask for log-probabilities."""
LEAST = -100.0
"""A log-probability that is not larger stands for a masked or missing token: OpenAI has −100 and −9999."""


class Context(NamedTuple):
    """What is seen of one context."""

    log_probs: dict[int | str, float]
    """Log-probabilities by token, its id or its text; NaN for a text that several tokens share."""
    ceiling: float
    """The most that another token's can be."""
    target: int | str | None
    """The token that followed."""
    is_by_text: bool = False
    """Whether a text stands once, at the place of the likeliest of its tokens, with the number of any of them."""


class Answer(NamedTuple):
    """A text, or the part of one that a server generated."""

    before: list[int] | None
    """Ids of the tokens before it, if they are known."""
    contexts: list[Context | None]
    """One for each token, in which it is the target; ``None`` where nothing is seen."""
    ids: list[int] | None
    """Ids of its tokens, if they are known."""


NOTHING = Answer(None, [], None)
"""What holds no text, such as the error of a request that failed."""


def read_answers(path: str) -> list[Answer]:
    """Return the texts in a file that holds a server's answer in each line, or one in all; `NOTHING` for other lines.

    Raises:
        SourceError: for a file that cannot be read or does not hold such answers; where log-probabilities are missing,
            it names the option of a request that gives them.
    """
    answers: list[Answer] = []
    first: Any = None
    try:
        for record in _records(Path(path)):
            first = record if first is None else first
            answers += [*_answers(record, {})] or [NOTHING]
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    except DAMAGE as error:
        raise SourceError(
            f"{path} does not hold a server's answers with log-probabilities, one JSON object in a line "
            f"({type(error).__name__}: {first_line(error)})"
        ) from error
    if any(context is not None for answer in answers for context in answer.contexts):
        return answers
    places = [*_places(first)]
    keys = {key for _, key, value in places if not (isinstance(value, list) and value and isinstance(value[0], str))}
    if request := next((REQUESTS[key] for key in REQUESTS if key in keys), ""):
        empty = (f" ({place} is {'null' if each is None else 'empty'})" for place, key, each in places
                 if key in EMPTY and not each)  # fmt: skip
        raise SourceError(f"{path} holds answers without the likeliest tokens{next(empty, '')}: ask with {request}")
    if "custom_id" in keys:
        raise SourceError(f"{path} holds the requests or the errors of a batch: give the file with its answers")
    if {"version", "kind"} <= keys:
        raise SourceError(
            f"{path} is a saved result, not a model or a matrix: 'bottleneck report' shows those of rank, kld and "
            "compare"
        )
    if isinstance(first, list) and first and not isinstance(first[0], str | dict):
        raise SourceError(f"{path} holds an array: load it in Python, and save it by numpy.save")
    raise SourceError(f"{path} is a text, not a model: name a model, and give the text with ", Parameter("data"))


def _records(path: Path) -> Iterator[Any]:
    """Yield the values of JSON in a file, one in each line, or one over several lines."""
    with open_file(path) as file:
        values = json_values(file)
        try:
            first = [*islice(values, 1)]
        except ValueError as error:
            file.seek(0)
            try:
                first = [parse_json(file.read(LARGEST + 1))]
            except ValueError:
                raise error from None
        yield from chain(first, values)


def _places(record: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the place, the key and the value of everything in an answer."""
    inside = record.items() if isinstance(record, dict) else enumerate(record if isinstance(record, list) else ())
    for key, value in inside:
        yield f"{place}{key}", key, value
        if isinstance(value, list | dict):
            yield from _places(value, f"{place}{key}.")


def _answers(record: Any, around: Mapping[str, Any]) -> Iterator[Answer]:
    """Yield the texts in an answer, at any depth; ``around`` holds what stands beside the values that hold it."""
    if isinstance(record, list):
        for each in record:
            yield from _answers(each, around)
    if not isinstance(record, Mapping):
        return
    if "top_probs" in record or "tok_str" in record:
        raise ValueError("it holds probabilities after sampling: ask with post_sampling_probs false")
    prompt = record.get("input_token_logprobs")
    if prompt and record.get("prompt_tokens", 0) > len(prompt):  # what it begins with is unknown
        record = {key: value for key, value in record.items() if not key.startswith("input_")}
    inside = record.get("logprobs")
    if isinstance(inside, Mapping) and isinstance(rows := inside.get("top_logprobs"), list) and rows[:1] == [None]:
        record = {key: value for key, value in record.items() if key != "prompt_logprobs"}  # an echo has it again
    around = {**around, **{key: record[key] for key in (*BEFORE, *GENERATED) if isinstance(record.get(key), list)}}
    read = set()
    for form in FORMS:
        rows = record.get(form.rows)
        if isinstance(rows, list) and rows and all(_is_row(row, form) for row in rows):
            yield _answer(record, form, rows, around)
            read.add(form.rows)
    for key, value in record.items():
        if key not in read and isinstance(value, list | Mapping):
            yield from _answers(value, around)


def _is_row(row: Any, form: Form) -> bool:
    if form.entries:
        return isinstance(row, Mapping) and form.entries in row
    if not isinstance(row, Mapping):
        return row is None or isinstance(row, list)
    if form.is_by_id:
        return all(re.fullmatch(r"-?\d+", name) for name in row)
    return all(value is None or isinstance(value, int | float) for value in row.values())


def _answer(record: Mapping[str, Any], form: Form, rows: Sequence[Any], around: Mapping[str, Any]) -> Answer:
    """Return a text from its rows."""
    followed = record.get(form.followed) if form.followed else rows
    followed = followed if isinstance(followed, list) and len(followed) == len(rows) else [None] * len(rows)
    if isinstance(values := record.get("token_logprobs"), list):
        followed = [{"token": token, "logprob": value} for token, value in zip(followed, values, strict=True)]
    tokens = [None if each is None else _token(each) for each in followed]
    likeliest = [row[form.entries] if form.entries else row for row in rows]
    contexts = [
        _context(row, each, form.is_by_id) if any(likeliest) else None
        for row, each in zip(likeliest, tokens, strict=True)
    ]
    after = [around[key] for key in GENERATED if key in around]
    whole = [[*around[first], *each] for first in BEFORE if first in around for each in after]
    names: list[Any] = [[each and each[0] for each in tokens], *after, *whole]
    ids = next((each for each in names if _are_ids(each) and len(each) == len(rows)), None)
    before: Any = next(([_token(each)[0] for each in around[key]] for key in BEFORE if key in around), None)
    is_whole = rows[0] is None  # nothing is before the first token
    return Answer([] if is_whole else before if _are_ids(before) else None, contexts, ids)


def _are_ids(values: Any) -> bool:
    return isinstance(values, list) and len(values) > 0 and all(isinstance(each, int) for each in values)


def _context(entries: Any, followed: tuple[int | str, float] | None, is_by_id: bool) -> Context | None:
    """Return a context from its likeliest tokens and the one that followed."""
    is_by_text = isinstance(entries, Mapping) and not is_by_id
    if isinstance(entries, Mapping):
        key = "id" if is_by_id else "token"
        values = ((name, each if isinstance(each, Mapping) else {"logprob": each}) for name, each in entries.items())
        entries = [{**each, key: name} for name, each in values]
    pairs = [_token(each) for each in entries or ()]
    ceiling = ceiling_of(pairs, followed and followed[0])
    if followed and math.isfinite(followed[1]):
        token, value = followed
        again = [each for name, each in pairs if name == token]
        # An id has one number; that of a text may be another token's.
        is_shown = again and (isinstance(token, int) or value <= LEAST or math.isclose(again[0], value, rel_tol=1e-5))
        pairs += [] if is_shown else [followed]
    return context_of(pairs, ceiling, followed and followed[0], is_by_text=is_by_text) if pairs else None


def context_of(
    pairs: Sequence[tuple[int | str, float]], ceiling: float, target: int | str | None, *, is_by_text: bool = False
) -> Context:
    """Return a context, in which a token that has several log-probabilities is unseen."""
    log_probs = dict(pairs)
    if len(log_probs) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        ceiling = max(ceiling, *(value for name, value in pairs if counts[name] > 1))
        log_probs |= {name: math.nan for name in log_probs if counts[name] > 1}
    return Context(log_probs, ceiling, target, is_by_text)


def ceiling_of(pairs: Sequence[tuple[int | str, float]], target: int | str | None) -> float:
    """Return the most that a token which is not listed can have: the smallest log-probability, if it is no mask.

    It is the second smallest one if the smallest may be that of the token that followed, which servers and distillation
    sets add to the likeliest ones, or put in the place of one of them.
    """
    known = [pair for pair in pairs if pair[1] > LEAST]
    least = min(known, key=itemgetter(1), default=None)
    return min((pair[1] for pair in known if pair is not least or target not in (None, pair[0])), default=0.0)


def _token(each: Any) -> tuple[int | str, float]:
    """Return a token's id if the server gives it, otherwise its text, and its log-probability, NaN if it is unknown.

    The text is that of its bytes, if they are there: it may end within a character.
    """
    if isinstance(each, int):
        return each, math.nan
    if isinstance(each, list):
        each = dict(zip(("logprob", "id", "token"), each, strict=False))
    elif not isinstance(each, Mapping):
        each = {"token": each}
    found = next((each[key] for key in IDS if each.get(key) is not None), None)
    text = str(next((each[key] for key in TEXTS if each.get(key) is not None), ""))
    if found is None and text.startswith(ID):
        found = text.removeprefix(ID)
    if found is None and each.get("bytes"):
        text = bytes(each["bytes"]).decode(errors="surrogateescape")
    value = next((each[key] for key in VALUES if key in each), math.nan)
    return text if found is None else int(found), -math.inf if value is None else float(value)
