"""How a source is opened: the keyword arguments that every measurement takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Final, TypedDict, TypeVar

import torch

from ..models import ModelOnText
from ..models.huggingface.options import HuggingFaceOptions
from .base import Source

Function = TypeVar("Function", bound=Callable[..., Any])


class Opening(TypedDict, total=False):
    """The options that open a source; each kind of source takes some of them."""

    data: Any
    """Text that the model reads: name of a corpus or a ``.txt`` file; for a loaded model a text or its token ids, (N,)
    or (B, L) consecutive pieces of L tokens; for a function or a torch module batches of ids (B, L). By default the
    corpus of the run, or the built-in corpus."""
    split: str
    """Split of the corpus: ``"train"``, ``"valid"`` or ``"test"`` (the default)."""
    contexts: int | None
    """Number of rows to use, from the first; by default all."""
    kind: str
    """What a matrix holds: ``"log-probs"`` (the default), ``"logits"``, which are normalized row by row, or
    ``"matrix"``, which is measured as it is."""
    dtype: str
    """Type that the model runs in, ``"float32"`` by default. Types narrower than float32, and ``"auto"`` for the type
    it was saved in, apply only to the body of a Hugging Face model; its output layer stays in float32."""
    device: str | torch.device
    """Device to compute on: ``"cpu"``, ``"cuda"``, or ``"auto"`` (the default), which takes a GPU if there is one."""
    vocab_size: int | None
    """Vocabulary size M of a function from ids to logits."""
    hugging_face: HuggingFaceOptions | None
    """Options for a Hugging Face model."""
    tokenizer: Any
    """Tokenizer of a loaded Hugging Face model."""
    hidden: Any
    """Hidden states for a head, (T, hidden_size): an array, a tensor, or blocks of rows."""
    targets: Any
    """(T,), ids of the tokens that follow those hidden states, if they are known."""


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
    """Description with its article, such as ``"a run folder"``."""
    matches: Callable[[Any], bool]
    """Return whether an object, or a path or name as a string, is of this kind; called in the registry's order."""
    open: Callable[..., Source | ModelOnText]
    """Open a source. Parameters with the name of an option of `Opening` receive that option; others need a default."""

    @property
    def takes(self) -> tuple[str, ...]:
        """The options of `Opening` that are parameters of ``open``."""
        return tuple(name for name in signature(self.open).parameters if name in DEFAULTS)


def shows(options: type) -> Callable[[Function], Function]:
    """Return a decorator that makes ``inspect.signature``, and so ``help`` and notebooks, show every option.

    Args:
        options: typed dictionary of the function's ``**options``.
    """

    def decorate(function: Function) -> Function:
        shown = signature(function)
        named = [each for each in shown.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        defaults: Mapping[str, Any] = DEFAULTS
        more = [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=defaults.get(name),
                annotation=getattr(hint, "__forward_arg__", hint),
            )
            for name, hint in options.__annotations__.items()
        ]
        function.__signature__ = shown.replace(parameters=[*named, *more])  # type: ignore[attr-defined]
        return function

    return decorate


def named(suffixes: tuple[str, ...]) -> Callable[[Any], bool]:
    """Return a function that tests whether a source is a name with one of these suffixes, in lower or upper case."""
    return lambda source: isinstance(source, str) and source.lower().endswith(suffixes)


def check_names(options: Mapping[str, Any], what: str) -> None:
    """Raise Python's own error for a keyword argument that no source takes."""
    if unknown := sorted(options.keys() - DEFAULTS.keys()):
        raise TypeError(f"{what}() got an unexpected keyword argument {unknown[0]!r}; it takes {', '.join(DEFAULTS)}")
