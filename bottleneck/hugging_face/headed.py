"""Causal language models of transformers under a head of this package: a class, and the folder it is saved in."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import TypedDict

from .. import heads
from ..core.files import make_folder
from ..core.json_file import check_schema, json_if_any, parse_json
from ..core.version import __version__
from ..errors import ConfigurationError, OutputError, SourceError
from ..heads import Head
from .output import WithheldStates

HEAD = "bottleneck_head.json"
"""File that makes a folder of transformers one of a model with a head; the weights of both are in the same files."""
MARK = "bottleneck_head"
"""Key of ``config.json`` with the head's name, which a plain model saved to the same folder does not write."""
FORMAT = 1
IGNORED = -100
"""Label of a target that does not count, as in transformers."""

ROUTER = ("router_aux_loss_coef", "aux_loss_coef")
"""Names that models give the weight of `router_loss`, on themselves or in their configuration."""
COMPILED = ("_compiled_call_impl", "_compiled_call", "_last_compile_config")
"""Where torch and transformers keep a model's compiled forward pass."""


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


class _HeadFile(TypedDict):
    """The fields of `HEAD`, without its format and version."""

    head: str
    settings: dict[str, Any]
    layer: str
    scale: Annotated[float, Interval(gt=-1e30, lt=1e30)]
    tied_to: str | None


def read_spec(folder: Path) -> HeadSpec | None:
    """Return the head of a saved model; ``None`` for a folder of transformers alone.

    Raises:
        SourceError: for a file that is damaged or of a newer version, or a head that is not known here.
    """
    file = folder / HEAD
    if not file.exists():
        config = json_if_any(folder / "config.json")
        if isinstance(config, dict) and MARK in config:
            raise SourceError(
                f"{folder} lacks {HEAD}, and its config.json names the head {config[MARK]!r}: copy it too"
            )
        return None
    try:
        values = parse_json(file.read_bytes(), dict[str, Any])
        written, by = values.pop("format"), values.pop("version")
        if written != FORMAT:
            raise SourceError(
                f"{file} has format {written}, and version {__version__} reads format {FORMAT}: it was written by "
                f"version {by}; install that one (pip install 'softmax-bottleneck=={by}')"
            )
        spec = HeadSpec(**values)
        check_schema(values, _HeadFile)
        heads.find(spec.head)
        config = json_if_any(folder / "config.json")
        if isinstance(config, dict) and config.get(MARK) != spec.head:
            raise SourceError(
                f"{folder} holds {HEAD} and the config.json of a model without that head, which was saved over it: "
                f"remove {HEAD} for the plain model, or save the model with the head again"
            )
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
    places = [*inspect.signature(parent.forward).parameters][1:]
    label_place = places.index("labels") if "labels" in places else len(places)

    @wraps(parent.forward)
    def forward(
        self: Any, *args: Any, labels: Tensor | None = None, return_logits: bool | None = None, **kwargs: Any
    ) -> Any:
        counted, shifted = kwargs.pop("num_items_in_batch", None), kwargs.pop("shift_labels", None)
        as_dict, ignored = kwargs.pop("return_dict", None), kwargs.pop("ignore_index", IGNORED)
        if len(args) > label_place:
            labels, args = args[label_place], (*args[:label_place], None, *args[label_place + 1 :])
        layer: WithheldStates = self.get_output_embeddings()
        layer.withhold()
        try:
            outputs = parent.forward(self, *args, return_dict=True, **kwargs)
        finally:
            hidden = layer.take()
        assert hidden is not None
        loss, logits = None, None
        if labels is not None:
            if "_loss_function" in self.__dict__:
                raise ConfigurationError("the loss is the head's own: compute another one from the log-probabilities")
            if shifted is None:
                shifted = F.pad(labels, (0, 1), value=ignored)[..., 1:]
            loss = _loss(layer.head, hidden, shifted.to(hidden.device), counted, ignored=ignored)
            balance = router_loss(self, outputs)
            if balance is not None:
                loss = loss + balance.to(hidden.device)
        if return_logits or (return_logits is None and (labels is None or self.return_logits)):
            logits = layer.log_prob(hidden)
        outputs = type(outputs)(**{**outputs, "loss": loss, "logits": logits})
        return outputs if as_dict is None or as_dict else outputs.to_tuple()

    # With another module, transformers takes the class for code from outside, and leaves buffers without numbers.
    about = {"__doc__": base.__doc__, "__module__": base.__module__}
    return type(base.__name__, (_Headed, base), {"forward": forward, "spec": spec, "base": base, **about})


def router_loss(model: Any, outputs: Any) -> Tensor | None:
    """Return the part of a mixture of experts' loss that balances them; ``None`` for other models."""
    balance: Tensor | None = outputs.get("aux_loss")
    if balance is None:
        return None
    weights = [getattr(place, name) for place in (model, model.config) for name in ROUTER if hasattr(place, name)]
    return balance * weights[0]


def _loss(head: Head, hidden: Tensor, targets: Tensor, counted: Tensor | int | None, *, ignored: int) -> Tensor:
    """Return the mean loss of the targets that count, or their sum over ``counted``, as transformers does."""
    # Heads take the steps of a sequence first: dropout masks are the same for all of them.
    steps, targets = hidden.transpose(0, 1), targets.transpose(0, 1)
    if counted is None:
        loss = head.nll(steps, targets, ignore_index=ignored)
    else:
        loss = head.nll(steps, targets, ignore_index=ignored, reduction="sum")
        loss = loss / (counted.to(loss.device) if isinstance(counted, Tensor) else counted)
    penalty = head.penalty(steps) if head.training else None
    return loss if penalty is None else loss + penalty


class _Headed:
    """What a model with a head has beside its forward pass: how it is made, saved, and kept from being resized."""

    spec: HeadSpec
    base: type
    """The class of transformers."""
    return_logits: bool = False
    """Whether `forward` returns log-probabilities beside a loss; the metrics of a ``Trainer`` need them."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        model: Any = super()
        model.__init__(config, *args, **kwargs)
        _check_fit(self, model.get_output_embeddings())
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Make the model picklable, although its class has no name in a module."""
        return _empty, (self.base, self.spec), self.__dict__

    def save_pretrained(self, save_directory: Any, is_main_process: bool = True, **kwargs: Any) -> None:
        """Write the model and its head as safetensors and JSON; see ``PreTrainedModel.save_pretrained``.

        Raises:
            ConfigurationError: for a variant of the file names, which is not read, or a model with an adapter, of
                which transformers saves nothing else.
            OutputError: for a path that is a file.
        """
        model: Any = super()
        if kwargs.get("variant") is not None:
            raise ConfigurationError("variant gives the weights a name that is not read: leave it out")
        if getattr(self, "_hf_peft_config_loaded", False):
            raise ConfigurationError("transformers saves only the adapter of this model: merge it into the model first")
        if Path(save_directory).is_file():
            raise OutputError(f"cannot write the model to {save_directory}: it is a file; name a folder")
        if is_main_process:  # before the upload that push_to_hub asks for
            self.spec.write(make_folder(Path(save_directory)))
        setattr(self.config, MARK, self.spec.head)  # type: ignore[attr-defined]
        try:
            model.save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        finally:
            delattr(self.config, MARK)  # type: ignore[attr-defined]

    def set_output_embeddings(self, layer: nn.Module) -> None:
        """Refuse an output layer without a head."""
        if not isinstance(layer, WithheldStates):
            raise ConfigurationError(
                "this model has a head: change the output layer of the plain model, before with_head"
            )
        setattr(self, self.spec.layer, layer)

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, *_: Any, **__: Any
    ) -> Any:
        """Refuse to change the vocabulary."""
        size, step = new_num_tokens or self.head.vocab_size, pad_to_multiple_of or 1
        if -(-size // step) * step == self.head.vocab_size:
            return self.get_input_embeddings()  # type: ignore[attr-defined]
        raise ConfigurationError(
            f"the head has {self.head.vocab_size:,} tokens: resize the embeddings of the model before with_head"
        )


def _empty(base: type, spec: HeadSpec) -> Any:
    """Return a model without modules, for pickle to fill."""
    kind = headed_class(base, spec)
    return kind.__new__(kind)


def _check_fit(model: Any, layer: nn.Module) -> None:
    """Refuse a head that was saved for another model than the plain one, whose output layer is given."""
    spec: HeadSpec = model.spec
    embeddings = model.get_input_embeddings().weight
    settings = spec.settings
    expected: dict[str, tuple[Any, list[Any]]] = {
        "layer": (spec.layer, [name for name, module in model.named_modules() if module is layer]),
        "tied_to": (spec.tied_to, [None, *(name for name, weight in model.named_parameters() if weight is embeddings)]),
        "settings.hidden_size": (settings.get("hidden_size"), [getattr(layer, "in_features", None)]),
        "settings.vocab_size": (settings.get("vocab_size"), [getattr(layer, "out_features", None)]),
    }
    for place, (value, allowed) in expected.items():
        if value not in allowed:
            raise SourceError(
                f"{HEAD} is of another model than its config.json: {place} is {value!r}, not {allowed[-1]!r}; save the "
                "model again"
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
    for name in COMPILED:  # functions of the other model
        copied.__dict__.pop(name, None)
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
