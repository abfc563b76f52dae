"""Causal language models of transformers under a head of this package: a class, and the folder it is saved in."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import heads
from ..._version import __version__
from ...errors import ConfigurationError, SourceError
from ...heads import Head
from .output import WithheldStates

HEAD = "bottleneck_head.json"
"""File that makes a folder of transformers one of a model with a head; the weights of both are in the same files."""
FORMAT = 1
IGNORED = -100
"""Label of a target that does not count, as in transformers."""


@dataclass(frozen=True)
class HeadSpec:
    """What makes a model with a head out of a model of transformers."""

    head: str
    """Name of a registered head."""
    settings: dict[str, Any]
    """Its settings, the sizes among them."""
    layer: str
    """Name of the module that it replaces."""
    scale: float
    """Factor on the hidden states before the head."""
    tied_to: str | None
    """Name of the parameter that is also the head's W; ``None`` where W is the head's own."""

    def build(self) -> WithheldStates:
        """Return the output layer with new weights."""
        return WithheldStates(heads.build(self.head, **self.settings), scale=self.scale)

    def write(self, folder: Path) -> None:
        """Write it into a model's folder."""
        values = {"format": FORMAT, **asdict(self), "version": __version__}
        (folder / HEAD).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def read_spec(folder: Path) -> HeadSpec | None:
    """Return the head of a saved model; ``None`` for a folder of transformers alone.

    Raises:
        SourceError: for a file that is damaged or of a newer version, or a head that is not known here.
    """
    file = folder / HEAD
    if not file.exists():
        return None
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        written, by = values.pop("format"), values.pop("version")
        if written != FORMAT:
            raise SourceError(
                f"{file} has format {written}, and version {__version__} reads format {FORMAT}: it was written by "
                f"version {by}; install that one (pip install 'softmax-bottleneck=={by}')"
            )
        spec = HeadSpec(**values)
        heads.find(spec.head)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{file} cannot be read ({error!r}); save the model again") from error
    except ConfigurationError as error:
        raise SourceError(f"{file}: {error}") from error
    return spec


def headed_class(base: type, spec: HeadSpec) -> Any:
    """Return a subclass of a causal language model of transformers whose output layer is a head.

    Its ``forward`` has the arguments of ``base``, and ``return_logits``: by default it returns a loss for labels, and
    log-probabilities without. The loss is the head's exact one, made block by block. The class has the name of
    ``base``, because the configuration in its folder names it.
    """
    parent: Any = base

    @wraps(parent.forward)
    def forward(
        self: Any, *args: Any, labels: Tensor | None = None, return_logits: bool | None = None, **kwargs: Any
    ) -> Any:
        counted, shifted = kwargs.pop("num_items_in_batch", None), kwargs.pop("shift_labels", None)
        as_dict = kwargs.pop("return_dict", None)
        outputs = parent.forward(self, *args, return_dict=True, **kwargs)
        layer: WithheldStates = self.get_output_embeddings()
        hidden, loss, logits = layer.take(), None, None
        if labels is not None:
            if shifted is None:
                shifted = F.pad(labels, (0, 1), value=IGNORED)[..., 1:]
            loss = _loss(layer.head, hidden, shifted.to(hidden.device), counted)
            balance = outputs.get("aux_loss")
            if balance is not None:
                loss = loss + self.router_aux_loss_coef * balance.to(hidden.device)
        if return_logits or (return_logits is None and labels is None):
            logits = layer.head.log_prob(hidden)
        outputs = type(outputs)(**{**outputs, "loss": loss, "logits": logits})
        return outputs if as_dict is None or as_dict else outputs.to_tuple()

    return type(base.__name__, (_Headed, base), {"forward": forward, "spec": spec, "__doc__": base.__doc__})


def _loss(head: Head, hidden: Tensor, targets: Tensor, counted: Tensor | int | None) -> Tensor:
    """Return the mean loss of the targets that count, or their sum over ``counted``, as transformers does."""
    # Heads take the steps of a sequence first: dropout masks are the same for all of them.
    steps, targets = hidden.transpose(0, 1), targets.transpose(0, 1)
    if counted is None:
        loss = head.nll(steps, targets, ignore_index=IGNORED)
    else:
        loss = head.nll(steps, targets, ignore_index=IGNORED, reduction="sum")
        loss = loss / (counted.to(loss.device) if isinstance(counted, Tensor) else counted)
    penalty = head.penalty(steps) if head.training else None
    return loss if penalty is None else loss + penalty


class _Headed:
    """What a model with a head has beside its forward pass: how it is made, saved, and kept from being resized."""

    spec: HeadSpec

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        model: Any = super()
        model.__init__(config, *args, **kwargs)
        put_head(self, self.spec.build())
        self.post_init()  # type: ignore[attr-defined]

    @property
    def head(self) -> Head:
        """The head."""
        return self.get_output_embeddings().head

    def get_output_embeddings(self) -> WithheldStates:
        """Return the output layer."""
        layer: WithheldStates = getattr(self, self.spec.layer)
        return layer

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Write the model and its head as safetensors and JSON; see ``PreTrainedModel.save_pretrained``."""
        model: Any = super()
        model.save_pretrained(save_directory, *args, **kwargs)
        self.spec.write(Path(save_directory))

    def resize_token_embeddings(self, *_: Any, **__: Any) -> Any:
        """Refuse to change the vocabulary."""
        raise ConfigurationError(
            f"the head has {self.head.vocab_size:,} tokens: resize the embeddings of the model before with_head"
        )


def put_head(model: Any, layer: WithheldStates) -> None:
    """Give a model of a headed class its output layer, and say which of its parameters are one."""
    spec: HeadSpec = model.spec
    setattr(model, spec.layer, layer)
    tied = dict(model._tied_weights_keys or {})
    tied.pop(f"{spec.layer}.weight", None)
    tied.pop(f"{spec.layer}.bias", None)
    if spec.tied_to is not None:
        tied[f"{spec.layer}.head.weight"] = spec.tied_to
    model._tied_weights_keys = tied
    model.all_tied_weights_keys = model.get_expanded_tied_weights_keys(all_submodels=False)


def same_weights(model: nn.Module, kind: Any) -> Any:
    """Return a model of another class that shares all modules and weights of ``model``, which is not changed."""
    copied: Any = kind.__new__(kind)
    copied.__dict__ = dict(model.__dict__)
    for name, value in model.__dict__.items():
        if isinstance(value, dict):
            copied.__dict__[name] = value.copy()
    return copied


def model_class(folder: Path, config: Any) -> Any:
    """Return the class of transformers for a configuration, or that of a model with a head for a folder of one.

    Raises:
        SourceError: for a head that cannot be read.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    spec = read_spec(folder)
    base: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return base if spec is None else headed_class(base, spec)


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's weights."""
    return next(model.parameters()).device
