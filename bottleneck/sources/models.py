"""The kinds of source that are language models: runs, Hugging Face models, and heads on given hidden states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from ..heads import Head
from ..hugging_face import open_loaded, open_saved
from ..hugging_face.folder import is_hub_id, is_hugging_face
from ..language_models import GivenStates, RunOnText
from ..language_models.checkpoint import Run, is_run
from .opening import Kind


def _is_run(source: Any) -> bool:
    return isinstance(source, Run) or (isinstance(source, str) and is_run(Path(source)))


def _is_saved(source: Any) -> bool:
    if not isinstance(source, str):
        return False
    return is_hugging_face(Path(source)) or (not Path(source).exists() and is_hub_id(source))


def _is_loaded(source: Any) -> bool:
    return isinstance(source, nn.Module) and hasattr(source, "get_output_embeddings")


RUN = Kind(what="a run", matches=_is_run, open=RunOnText)
SAVED = Kind(what="a Hugging Face model", matches=_is_saved, open=open_saved)
LOADED = Kind(what="a loaded Hugging Face model", matches=_is_loaded, open=open_loaded)
HEAD = Kind(what="an output layer", matches=lambda source: isinstance(source, Head | nn.Linear), open=GivenStates)
