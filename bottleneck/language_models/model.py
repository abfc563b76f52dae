"""A backbone and a head together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import torch
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from torch import Tensor, nn

from .. import heads
from ..core.checks import shown
from ..core.machine import free_memory
from ..errors import ConfigurationError
from . import backbones
from .backbones import State

LAYERS = 64
"""Number of layers of the head that is built to check settings; more than any backbone has."""
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)


class Component(BaseModel):
    """A registered component with its settings: ``{"name": "mos", "components": 15}``."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.model_extra or {})


class ModelConfig(BaseModel):
    """Settings of a `LanguageModel`; the vocabulary's size comes from the corpus."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    backbone: Component = Field(default_factory=lambda: Component(name="lstm"))
    head: Component = Field(default_factory=lambda: Component(name="softmax"))
    tie_embeddings: bool = True
    """Whether input and output embeddings are one matrix (Inan et al. 2016)."""

    @model_validator(mode="after")
    def _components_know_their_keys(self) -> ModelConfig:
        backbone, head = backbones.find(self.backbone.name).Config, heads.find(self.head.name)
        _check_types(self.backbone, get_type_hints(backbone), "backbone")
        backbone(**self.backbone.settings)  # refuses values out of range
        parameters = heads.parameters(self.head.name).items()
        types = {key: Any if each.annotation is each.empty else each.annotation for key, each in parameters}
        _check_types(self.head, types, "head")
        sizes = {"hidden_size": LAYERS, "layer_sizes": (1,) * LAYERS} if head.takes_all_layers else {"hidden_size": 1}
        # The constructor refuses values out of range, also for a vocabulary of one token.
        _check_sizes(lambda: heads.build(self.head.name, vocab_size=1, **sizes, **self.head.settings))
        return self


def _check_types(component: Component, types: Mapping[str, Any], what: str) -> None:
    """Refuse unknown settings, and values of another type."""
    what = f"{what} {component.name!r}"
    for key, value in component.settings.items():
        if key not in types:
            raise ValueError(f"unknown key {key!r} for {what}; known keys are {', '.join(types)}")
        try:
            TypeAdapter(types[key], config=_STRICT).validate_python(value)
        except ValidationError as error:
            raise ValueError(f"{key} of {what}: {error.errors()[0]['msg']} (got {shown(value)})") from None


def _check_sizes(make: Callable[[], nn.Module], copies: int = 1) -> None:
    """Refuse sizes that no tensor can have, and weights beyond this machine's memory, without allocating any."""
    try:
        with torch.device("meta"):
            weights = [*make().parameters()]
    except (RuntimeError, TypeError, OverflowError) as error:
        if "overflow" in str(error).lower() or isinstance(error, OverflowError):
            raise ConfigurationError("a size of the model is larger than any tensor: choose smaller sizes") from error
        if "meta" in str(error):  # a class of another package that reads the values of its weights
            return
        raise
    needed, free = copies * sum(weight.nbytes for weight in weights), free_memory()
    if needed > free:
        raise ConfigurationError(
            f"the model's weights take {needed / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB of memory are free: "
            "choose smaller sizes"
        )


def build(config: ModelConfig, *, vocab_size: int, copies: int = 1) -> LanguageModel:
    """Return a new model; `ConfigurationError` when so many ``copies`` of its weights do not fit into memory."""
    _check_sizes(lambda: LanguageModel(config, vocab_size=vocab_size), copies)
    return LanguageModel(config, vocab_size=vocab_size)


class LanguageModel(nn.Module):
    """A context encoder under an output layer: P(next token | tokens so far).

    Args:
        config: names and settings of backbone and head.
        vocab_size: M.
    """

    def __init__(self, config: ModelConfig, *, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        all_layers = heads.find(config.head.name).takes_all_layers
        self.backbone = backbones.build(
            config.backbone.name, vocab_size=vocab_size, all_layers=all_layers, **config.backbone.settings
        )
        settings = config.head.settings | ({"layer_sizes": self.backbone.layer_sizes} if all_layers else {})
        if config.tie_embeddings:
            settings.setdefault("embedding_size", self.backbone.embedding.embedding_dim)
        self.head = heads.build(
            config.head.name, hidden_size=self.backbone.hidden_size, vocab_size=vocab_size, **settings
        )
        if config.tie_embeddings:
            self.head.tie(self.backbone.embedding)

    def make_head(self) -> None:
        """Give a model on the meta device a head with weights of its own, or with the embeddings it is tied to."""
        self.head = heads.build(self.config.head.name, **self.head.settings)
        if self.config.tie_embeddings:
            self.head.tie(self.backbone.embedding.to_empty(device="cpu"))

    def hidden(
        self, ids: Tensor, state: State | None = None, *, contexts: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Return the hidden states (L, B, hidden_size) of ``ids`` (L, B), and the state after them.

        They start in ``state``, or, where a `Batch` has them, in the state after its ``contexts``.
        """
        if contexts is not None:
            state = self.backbone.read(contexts)
        result: tuple[Tensor, State] = self.backbone(
            ids, self.backbone.initial_state(ids.shape[1]) if state is None else state
        )
        return result

    def parameter_count(self) -> int:
        """Return the number of parameters, tied ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters())
