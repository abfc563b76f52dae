"""Running text for models with their own tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .. import corpora
from ..core.files import sha256_bytes
from ..corpora import EOS, Text
from ..errors import ConfigurationError, CorpusError, first_line

DEFAULT_CORPUS = "python-docs"
"""Default corpus, which needs no download."""


@dataclass(frozen=True)
class RunningText:
    """A text before it is encoded."""

    name: str
    """Name of the corpus, file or dataset."""
    split: str | None
    text: str

    @property
    def sha256(self) -> str:
        """Hash of the text in UTF-8."""
        return sha256_bytes(self.text.encode())


def read_text(data: str | None, split: str, *, dataset: str | None) -> RunningText:
    """Return the text of a corpus's split, of a text file, or of a dataset of the hub.

    Words of a corpus are joined by spaces, characters by nothing, and lines by newlines.

    Raises:
        ConfigurationError: for both ``data`` and ``dataset``, a dataset without the package ``datasets``, or a
            text file with a split.
        CorpusError: for a text that is missing, empty or not UTF-8.
    """
    if dataset is not None:
        if data is not None:
            raise ConfigurationError("--data and --hf-dataset each name a text: give one of them")
        return _dataset(dataset, split)
    name = data or DEFAULT_CORPUS
    if name.endswith(".txt") or Path(name).is_file():
        if split != "test":  # the default
            raise ConfigurationError(f"split {split} does not apply to the text file {name}, which is read whole")
        return RunningText(name, None, Text.read(Path(name)).decoded())
    corpus = corpora.load(name)
    between = "" if all(len(token) == 1 for token in corpus.vocabulary.tokens if token != EOS) else " "
    lines: list[list[str]] = [[]]
    for token in corpus.vocabulary.decode(corpus.split(split)):
        if token == EOS:
            lines.append([])
        else:
            lines[-1].append(token)
    return RunningText(corpus.name, split, "\n".join(map(between.join, lines)).removesuffix("\n"))


def _dataset(name: str, split: str) -> RunningText:
    try:
        import datasets
    except ImportError as error:
        raise ConfigurationError("--hf-dataset needs the package datasets: pip install datasets") from error
    path, _, configuration = name.partition(":")
    try:
        named = {"valid": "validation"}.get(split, split)
        rows = datasets.load_dataset(path, configuration or None, split=named, trust_remote_code=False)
    except Exception as error:  # the package raises errors of many others'
        raise CorpusError(f"the data set {name} cannot be loaded, split {split}: {first_line(error)}") from error
    if "text" not in rows.column_names:
        raise CorpusError(
            f"the data set {name} has no column 'text' (its columns are {', '.join(rows.column_names)}); save the "
            "text as a .txt file and pass it with --data"
        )
    texts = [text for text in rows["text"] if text is not None]
    if not all(isinstance(text, str) for text in texts):
        raise CorpusError(f"the column 'text' of the data set {name} holds no text: pass another data set, or --data")
    return RunningText(name, split, "\n".join(texts))
