"""A Hugging Face model: in a folder, loaded when its weights are needed, or already loaded by the caller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch
from torch import nn

from ..core.files import sha256_bytes, sha256_file
from ..core.tensor_file import digest
from ..errors import ConfigurationError
from . import folder, headed, loading


class HuggingFaceModel(ABC):
    """A causal language model of the package transformers."""

    name: str
    """Name of the model."""
    skeleton: nn.Module
    """The model for its sizes and configuration; its weights may not be loaded."""
    dtype: str
    """Type that the body computes in, a name of `loading.BODY_DTYPES`."""

    @property
    @abstractmethod
    def body(self) -> nn.Module:
        """The model with its weights."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Hashes of the weights and the configuration."""

    @property
    def tied(self) -> bool:
        """Whether the output embeddings are the input embeddings."""
        embeddings = self.body.get_input_embeddings()  # type: ignore[operator]
        return embeddings is not None and embeddings.weight is loading.output_layer(self.body, self.name).weight


@final
class SavedModel(HuggingFaceModel):
    """A model that ``save_pretrained`` wrote.

    Args:
        path: folder of the model.
        dtype: type that the body runs in, or ``"auto"`` for the type in its configuration.
        device: device that the body runs on.
        allow_pickle: whether pickled weights may be read; only their numbers are, and no code runs.

    Raises:
        SourceError: for a model that is no causal language model, or lacks weights.
        ConfigurationError: for an unknown dtype, or without the package transformers.
    """

    def __init__(self, path: Path, *, dtype: str, device: str, allow_pickle: bool) -> None:
        folder.read_config(path)
        self._path, self._device, self.name = path, torch.device(device), str(path)
        self._weights = folder.weight_files(path, allow_pickle=allow_pickle)
        self.skeleton = loading.skeleton(path)
        self.dtype = body_dtype(dtype, getattr(self.skeleton.config, "dtype", None))

    @cached_property
    def body(self) -> nn.Module:
        """The model, read when it is first needed."""
        pickled = self._weights[0].suffix == ".bin"
        if not pickled:
            loading.check_tied(self.skeleton, self.name, self._weights)
        dtype = loading.BODY_DTYPES[self.dtype]
        return loading.read(self._path, pickled=pickled, dtype=dtype).to(self._device).eval()

    @property
    def identity(self) -> Mapping[str, str]:
        """Hashes of the files."""
        weights = sha256_bytes("".join(map(sha256_file, self._weights)).encode())
        head = self._path / headed.HEAD
        of_head = {"head": sha256_file(head)} if head.exists() else {}
        return {"model": weights, "config": sha256_file(self._path / folder.CONFIG), **of_head}


@final
class LoadedModel(HuggingFaceModel):
    """A loaded model, which keeps its device, type and mode.

    Args:
        model: a model with ``get_output_embeddings``, such as every causal language model of transformers.
        dtype: ``"auto"``, the model's own type, or ``"float32"``, which is ignored.

    Raises:
        ConfigurationError: for another dtype than the model's.
    """

    def __init__(self, model: nn.Module, *, dtype: str) -> None:
        self.skeleton = model
        self.name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
        saved = next(model.parameters()).dtype
        self.dtype = body_dtype("auto", saved)
        if dtype not in ("float32", "auto", self.dtype):
            raise ConfigurationError(
                f"the model is in {self.dtype}, and dtype={dtype!r} was asked for: convert it with "
                f"model.to(torch.{dtype})"
            )

    @property
    def body(self) -> nn.Module:
        """The model."""
        return self.skeleton

    @property
    def identity(self) -> Mapping[str, str]:
        """Hash of the current weights."""
        config: Any = self.skeleton.config
        return {"model": digest(self.skeleton.state_dict()), "config": sha256_bytes(config.to_json_string().encode())}


def body_dtype(dtype: str, saved: object) -> str:
    """Return the type of a model's body, ``saved`` for ``"auto"``; `ConfigurationError` for an unknown type."""
    chosen = str(saved or "float32").removeprefix("torch.") if dtype == "auto" else dtype
    if chosen not in loading.BODY_DTYPES:
        raise ConfigurationError(
            f"unknown dtype {chosen!r}; a Hugging Face model runs in {', '.join(loading.BODY_DTYPES)} or auto"
        )
    return chosen
