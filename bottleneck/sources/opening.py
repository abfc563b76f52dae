"""How a source is opened: the keyword arguments that every measurement takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final, TypedDict

from ..models import ModelOnText
from ..models.huggingface.options import HuggingFaceOptions
from .base import Source


class Opening(TypedDict, total=False):
    """What decides which rows a source has; each kind of source takes some of it."""

    data: Any
    """The text a model reads: a corpus's name, a ``.txt`` file, for a loaded model a text or token ids, for a function
    or a torch module batches of ids (B, L). By default a run's own corpus, and the built-in one for others."""
    split: str
    """Part of the corpus: ``"train"``, ``"valid"`` or ``"test"`` (the default)."""
    contexts: int | None
    """Only the first so many rows."""
    kind: str
    """What a matrix holds: ``"log-probs"`` (the default), ``"logits"``, which are normalized row by row, or
    ``"matrix"``, taken as it is."""
    dtype: str
    """Type a model runs in, ``"float32"`` by default. Types narrower than float32, and ``"auto"`` for the type it was
    saved in, apply only to the body of a Hugging Face model; its output layer stays in float32."""
    device: str
    """Where models run: ``"cpu"``, ``"cuda"``, or ``"auto"`` (the default) for CUDA where there is one."""
    vocab_size: int | None
    """M of a function from ids to logits."""
    hugging_face: HuggingFaceOptions | None
    """How a Hugging Face model is read."""
    tokenizer: Any
    """Of a loaded Hugging Face model."""
    hidden: Any
    """The hidden states that a head is given: (T, hidden_size), an array, a tensor, or blocks of rows."""
    targets: Any
    """(T,), the token ids that came after those hidden states, where they are known."""


DEFAULTS: Final[Opening] = {
    "data": None,
    "split": "test",
    "contexts": None,
    "kind": "log-probs",
    "dtype": "float32",
    "device": "auto",
    "vocab_size": None,
    "hugging_face": None,
    "tokenizer": None,
    "hidden": None,
    "targets": None,
}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of SOURCE: how it is recognized and opened. To add one, see docs/extending.md."""

    what: str
    """What it is, with its article: ``"a run folder"``."""
    matches: Callable[[Any], bool]
    """Whether an object, or a path or name as a string, is of this kind; asked in the registry's order."""
    open: Callable[..., Source | ModelOnText]
    """Opens it. Its keyword parameters that are options of `Opening` are given it; others need a default."""

    @property
    def takes(self) -> tuple[str, ...]:
        """The options of `Opening` that ``open`` has as parameters."""
        return tuple(name for name in signature(self.open).parameters if name in DEFAULTS)


def named(suffixes: tuple[str, ...]) -> Callable[[Any], bool]:
    """Return the test whether a source is a name with one of these suffixes."""
    return lambda source: isinstance(source, str) and source.endswith(suffixes)


def check_names(options: Mapping[str, Any], what: str) -> None:
    """Refuse a keyword argument that no source takes, as Python does for a function's own."""
    if unknown := sorted(options.keys() - DEFAULTS.keys()):
        raise TypeError(f"{what}() got an unexpected keyword argument {unknown[0]!r}; it takes {', '.join(DEFAULTS)}")
