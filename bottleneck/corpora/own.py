"""A text of one's own: a file, JSON Lines, texts in memory, or token ids."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from ..core.files import DAMAGE, exists, kind_of, open_file, sha256_bytes
from ..core.json_file import parse_json
from ..errors import CorpusError, first_line
from .batches import Ids, texts_in
from .corpus import Corpus, RawText
from .registry import catalogue, is_present, load
from .vocabulary import Vocabulary

IN_MEMORY = "the text"
"""Name of a text that is not in a file."""
JSON = re.compile(r"(.*\.(?:jsonl?|ndjson))(?::(\S.*))?", re.IGNORECASE)
IDS = ".npy"
"""Suffix of a file of token ids."""
TABLES = (".csv", ".tsv", ".parquet", ".feather", ".arrow")
PATHS = ("/", "./", "../", "~/")
"""What begins a path, which may have spaces, and hardly a text."""


def read_data(data: Any, *, vocabulary: Vocabulary, split: str) -> Corpus:
    """Return what the argument ``data`` of a measurement means, as a corpus.

    Args:
        data: a corpus or its folder, or what `given_data` takes, with spaces between the tokens of a text.
        vocabulary: the tokens of the model.
        split: name of the only split of a text or of ids.

    Raises:
        CorpusError: for a corpus or file that cannot be read, or a token outside the vocabulary.
        SourceError: for ids that are not whole numbers, (N,) or (B, L).
    """
    given = given_data(data)
    if isinstance(given, RawText):
        lines = enumerate(given.lines(), 1)
        parts = [vocabulary.encode(line, f"{given.where}, line {number}") for number, line in lines]
        return Corpus(given.where, vocabulary, {split: np.concatenate(parts)}, sha256_bytes(given.data))
    if given is None:
        return load(data, vocabulary=vocabulary)
    texts = [ids for ids, _ in given]
    ids, starts = np.concatenate([*texts, np.empty(0, np.int64)]), np.array([0, *accumulate(map(len, texts))])[:-1]
    vocabulary.decode(ids)
    sha256 = sha256_bytes(ids.tobytes() + starts[1:].tobytes())
    return Corpus(name_of_ids(data), vocabulary, {split: ids}, sha256, starts if len(texts) > 1 else None)


def name_of_ids(data: Any) -> str:
    """Return what token ids are called: their file, if they are in one."""
    return str(data) if isinstance(data, str | Path) else "token ids"


def given_data(data: Any) -> RawText | list[Ids] | None:
    """Return the text that ``data`` is or names, or the ids of its texts; ``None`` for a corpus and for ``None``.

    Args:
        data: a text file; a file of JSON, a record in each line or an array of them, with texts or token ids in a field
            (``FILE.jsonl:FIELD``, by default "text"); an ``.npy`` file of token ids, (N,) or (B, L); a text as bytes,
            or one of several words that is not the name of a corpus; or what `texts_in` takes, whose strings are
            joined by newlines.

    Raises:
        CorpusError: for a file that cannot be read, or a record without the field.
        SourceError: for what does not hold texts.
    """
    if data is None:
        return None
    if isinstance(data, bytes | bytearray):
        return RawText(IN_MEMORY, bytes(data))
    if not isinstance(data, str | Path):
        texts: Any = texts_in(data)
        return RawText.joined(IN_MEMORY, texts) if texts and isinstance(texts[0], str) else texts
    name = str(data)
    if not name.strip():
        raise CorpusError("the text is empty: give one, or its name")
    if file := _file(name):
        if file[0].suffix.lower() == IDS:
            return _ids(file[0])
        raw = RawText.read(file[0])
        return raw if file[1] is None else _field(name, raw, file[1])
    is_text = isinstance(data, str) and len(name.split()) > 1 and not exists(Path(name))
    if is_text and name not in {info.name for info in catalogue()}:
        return RawText.joined(IN_MEMORY, [name])
    return None


def check_named(data: str) -> None:
    """Refuse a text file that is missing, empty or not UTF-8, and a corpus that is not here, in little time."""
    path = Path(data)
    if path.suffix.lower() == IDS:
        given_data(data)
    elif file := _file(data):
        RawText.read(file[0]).decoded()
    elif not path.suffix and not exists(path) and len(data.split()) == 1 and not is_present(data):
        load(data)


def _file(name: str) -> tuple[Path, str | None] | None:
    """Return the text file that a name means, and the field of its records; ``None`` for another name."""
    if records := JSON.fullmatch(name):
        return Path(records[1]), records[2] or "text"
    path = Path(name)
    if not exists(path):
        is_path = name.endswith((".txt", IDS)) or (name.startswith(PATHS) and "\n" not in name)
        return (path, None) if is_path else None
    if path.suffix.lower() in TABLES:
        raise CorpusError(f"{name} is a table: write its column of texts to JSON Lines, or give it in Python")
    return None if kind_of(path) == "a folder" else (path, None)


def _ids(path: Path) -> list[Ids]:
    """Return the texts in a file of token ids."""
    try:
        with open_file(path) as file:
            texts: Any = texts_in(np.load(file, allow_pickle=False))
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}") from error
    except DAMAGE as error:
        raise CorpusError(f"{path} does not hold token ids, (N,) or (B, L): {first_line(error)}") from error
    return texts


def _field(name: str, text: RawText, field: str) -> RawText | list[Ids]:
    """Return what one field of JSON Lines, or of an array of records, holds: texts joined by newlines, or token ids."""
    texts: list[Any] = []
    whole = text.decoded()
    with suppress(ValueError):
        if isinstance(array := parse_json(whole), list):
            whole = "\n".join(map(json.dumps, array))
    for number, line in enumerate(filter(str.strip, whole.split("\n")), 1):
        where = f"{text.where}, record {number}"
        try:
            record = parse_json(line)
        except ValueError as error:
            raise CorpusError(f"{where} is not JSON ({first_line(error)}): each line must be one object") from error
        if isinstance(record, str) and field == "text":
            record = {field: record}
        if isinstance(record, dict) and record.get(field, "") is None:
            continue
        if not isinstance(record, dict) or not isinstance(record.get(field), str | list):
            fields = f"its fields are {', '.join(record)}" if isinstance(record, dict) else "it is not an object"
            raise CorpusError(f"{where} has no text in the field {field!r} ({fields}); name one as FILE.jsonl:FIELD")
        texts.append(record[field])
    if all(isinstance(each, str) for each in texts):
        return RawText.joined(name, texts)
    ids: Any = texts_in(texts)
    if any(isinstance(each, str) for each in ids):
        raise CorpusError(f"{name}: the field {field!r} holds lists of words: join each to one text, or give token ids")
    return ids
