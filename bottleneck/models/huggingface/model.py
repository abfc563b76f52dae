"""A Hugging Face model: in a folder, loaded when its weights are needed, or loaded by someone else."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch
from torch import nn

from ...errors import ConfigurationError
from ...files import sha256_bytes, sha256_file
from . import folder, loading


class HuggingFaceModel(ABC):
    """A causal language model of the package transformers."""

    name: str
    """What to call it."""
    skeleton: nn.Module
    """The model, perhaps without weights: its sizes and its configuration."""
    dtype: str
    """The type its body computes in, a name of `loading.BODY_DTYPES`."""

    @property
    @abstractmethod
    def body(self) -> nn.Module:
        """The model with its weights."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Hashes of the weights and the configuration."""

    @property
    def linear(self) -> nn.Linear:
        """Its output layer."""
        return loading.output_layer(self.body, self.name)

    @property
    def tied(self) -> bool:
        """Whether the output embeddings are the input embeddings."""
        embeddings = self.body.get_input_embeddings()  # type: ignore[operator]
        return embeddings is not None and embeddings.weight is self.linear.weight


@final
class SavedModel(HuggingFaceModel):
    """A model that ``save_pretrained`` wrote.

    Args:
        path: its folder.
        dtype: what its body runs in, or ``"auto"`` for what its configuration says.
        device: where.
        allow_pickle: whether pickled weights may be read: numbers only, no code.

    Raises:
        SourceError: for what is no causal language model, or lacks weights.
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
        return loading.load(self._path, dtype=loading.BODY_DTYPES[self.dtype], device=self._device, pickled=pickled)

    @property
    def identity(self) -> Mapping[str, str]:
        """Hashes of the files."""
        weights = sha256_bytes("".join(map(sha256_file, self._weights)).encode())
        return {"model": weights, "config": sha256_file(self._path / folder.CONFIG)}


@final
class LoadedModel(HuggingFaceModel):
    """A model that is loaded already: it stays on its device, in its type and in its mode.

    Args:
        model: with ``get_output_embeddings``, as every causal language model of transformers has it.
        dtype: ``"float32"``, which asks for nothing, ``"auto"``, or the type the model is in.

    Raises:
        ConfigurationError: for another dtype than the model's.
    """

    def __init__(self, model: nn.Module, *, dtype: str) -> None:
        self.skeleton = model
        self.name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
        own = next(model.parameters()).dtype
        self.dtype = body_dtype("auto", own)
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
        """The hash of the weights as they are now."""
        digest = hashlib.sha256()
        for name, tensor in self.skeleton.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        config: Any = self.skeleton.config
        return {"model": digest.hexdigest(), "config": sha256_bytes(config.to_json_string().encode())}


def body_dtype(dtype: str, own: object) -> str:
    """Return the type of a model's body: ``own`` for ``"auto"``; `ConfigurationError` for one that is not known."""
    found = str(own or "float32").removeprefix("torch.") if dtype == "auto" else dtype
    if found not in loading.BODY_DTYPES:
        raise ConfigurationError(
            f"unknown dtype {found!r}; a Hugging Face model runs in {', '.join(loading.BODY_DTYPES)} or auto"
        )
    return found
