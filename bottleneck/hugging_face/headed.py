"""A head of this package as the output layer of a causal language model, and the folder of such a model."""

from __future__ import annotations

import copy
import inspect
from functools import cache, wraps
from pathlib import Path
from threading import get_ident
from typing import Annotated, Any, cast

import torch
from annotated_types import Interval
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import TypedDict

from .. import heads
from ..core.eager import eagerly
from ..core.files import make_folder
from ..core.json_file import check_schema
from ..core.version import __version__
from ..corpora.batches import IGNORED
from ..errors import ConfigurationError, SourceError
from ..heads import Head

MODEL_TYPE = "softmax_bottleneck; first import softmax_bottleneck.integrations.transformers"
"""``model_type`` of a saved model with a head; without the import, transformers names it and refuses the folder."""
MARK = "bottleneck_head"
"""Key of ``config.json`` with the head."""
FORMAT = 2
ROUTER = ("router_aux_loss_coef", "aux_loss_coef")
"""Names that models give the weight of `router_loss`, on themselves or in their configuration."""
COMPILED = ("_compiled_call_impl", "_compiled_call", "_last_compile_config")
"""Where torch and transformers keep a model's compiled forward pass."""
BATCHED = 3
"""Dimensions of a batch of sequences of hidden states."""


class HeadSpec(TypedDict):
    """What makes a model with a head out of a model of transformers, as its ``config.json`` holds it."""

    format: int
    model_type: str
    """The type of the model of transformers."""
    head: str
    """Name of a registered head."""
    settings: dict[str, Any]
    """Its settings, the sizes among them."""
    layer: str
    """Name of the module that it replaces."""
    scale: Annotated[float, Interval(gt=-1e30, lt=1e30)]
    """Factor on the hidden states before the head."""
    tied_to: str | None
    """Name of the parameter that is also the head's W; ``None`` where W is the head's own."""
    version: str


HeadSpec.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]


def checked_spec(spec: Any, where: object) -> HeadSpec:
    """Return the description of a head; ``where`` is its place in errors.

    Raises:
        SourceError: for one that is damaged or of another version, or names an unknown head.
    """
    if not isinstance(spec, dict) or spec.get("format") != FORMAT:
        number, by = (spec.get(key) if isinstance(spec, dict) else None for key in ("format", "version"))
        raise SourceError(
            f"the head in {where} has format {number}, and version {__version__} reads format {FORMAT}: it was written "
            f"by version {by}; install that one (pip install 'softmax-bottleneck=={by}')"
        )
    try:
        check_schema(spec, HeadSpec)
        heads.find(spec["head"])
    except (ValueError, ConfigurationError) as error:
        raise SourceError(f"the head in {where} cannot be read ({error}); save the model again") from error
    return cast(HeadSpec, spec)


@cache
def headed_config(kind: type) -> Any:
    """Return a configuration class like that of a plain model, with the type of a model with a head."""
    return type(kind.__name__, (kind,), {"model_type": MODEL_TYPE, "plain": kind})


class OutputLayer(nn.Module):
    """A head in the place of an ``nn.Linear``: hidden states in, log-probabilities out.

    Log-probabilities are logits whose softmax they are themselves, so code that follows may take them for logits.

    Args:
        head: the head.
        scale: factor on the hidden states before the head: the logit scale of a model.
    """

    def __init__(self, head: Head, *, scale: float = 1.0) -> None:
        super().__init__()
        self.head, self.scale = head, scale
        self.input: nn.Module = nn.Identity()

    @property
    def weight(self) -> nn.Parameter:
        """The output embeddings W, (M, d)."""
        return self.head.weight

    def states(self, hidden: Tensor) -> Tensor:
        """Return what the head is given: (…, hidden_size) → (…, hidden_size)."""
        scaled: Tensor = self.input(hidden if self.scale == 1 else hidden * self.scale)
        return scaled

    def forward(self, hidden: Tensor) -> Tensor:
        """Return log-probabilities in nats, in float32 or wider: (…, hidden_size) → (…, M)."""
        return self.log_prob(self.states(hidden))

    def log_prob(self, states: Tensor) -> Tensor:
        """Return the head's log-probabilities: (…, hidden_size) → (…, M); three axes are (B, L, hidden_size)."""
        if not self.training or states.dim() != BATCHED:
            return self.head.log_prob(states)
        # Heads take the steps of a sequence first: dropout masks are the same for all of them.
        return self.head.log_prob(states.transpose(0, 1)).transpose(0, 1).contiguous()


class WithheldStates(OutputLayer):
    """An output layer that keeps the hidden states for the model around it, which applies the head to them.

    Only a call between `withhold` and `take`, in the same thread, keeps them; others return log-probabilities. The
    three run outside of compiled code, which knows no threads.
    """

    def __init__(self, head: Head, *, scale: float = 1.0) -> None:
        super().__init__(head, scale=scale)
        self._withheld: dict[int, Tensor | None] = {}  # by thread, because several may run one model

    def withhold(self) -> None:
        """Keep the hidden states of the next call."""
        eagerly(_withhold, self._withheld)

    def forward(self, hidden: Tensor) -> Tensor:
        """Keep the hidden states and return one zero for each; return log-probabilities if none are waited for."""
        states = self.states(hidden)
        if not eagerly(_keep, self._withheld, states):
            return self.log_prob(states)
        return hidden.new_zeros(*states.shape[:-1], 1)

    def take(self) -> Tensor | None:
        """Return the hidden states, once; ``None`` if the layer was not called."""
        return eagerly(_take, self._withheld)


def _withhold(withheld: dict[int, Tensor | None]) -> None:
    withheld[get_ident()] = None


def _keep(withheld: dict[int, Tensor | None], states: Tensor) -> bool:
    """Keep hidden states if they are waited for; return whether they are."""
    if get_ident() not in withheld:
        return False
    withheld[get_ident()] = states
    return True


def _take(withheld: dict[int, Tensor | None]) -> Tensor | None:
    return withheld.pop(get_ident(), None)


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
        item_count, next_labels = kwargs.pop("num_items_in_batch", None), kwargs.pop("shift_labels", None)
        as_dict, ignore_index = kwargs.pop("return_dict", None), kwargs.pop("ignore_index", IGNORED)
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
            if "_loss_function" in vars(self):
                raise ConfigurationError("the loss is the head's own: compute another one from the log-probabilities")
            if next_labels is None:
                next_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
            loss = _loss(layer.head, hidden, next_labels.to(hidden.device), item_count, ignore_index)
            if (balance := router_loss(self, outputs)) is not None:
                loss = loss + balance.to(hidden.device)
        if return_logits or (return_logits is None and (labels is None or self.return_logits)):
            logits = layer.log_prob(hidden)
        outputs = type(outputs)(**{**outputs, "loss": loss, "logits": logits})
        if as_dict is not None and not as_dict:
            return outputs.to_tuple()
        return outputs

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


def _loss(head: Head, hidden: Tensor, targets: Tensor, count: Tensor | int | None, ignore_index: int) -> Tensor:
    """Return the mean loss of the targets that are not ignored, or their sum over ``count``, as transformers does."""
    # Heads take the steps of a sequence first: dropout masks are the same for all of them.
    steps, targets = hidden.transpose(0, 1), targets.transpose(0, 1)
    loss = head.nll(steps, targets, ignore_index=ignore_index, reduction="mean" if count is None else "sum")
    if count is not None:
        loss = loss / (count.to(loss.device) if isinstance(count, Tensor) else count)
    penalty = head.penalty(steps) if head.training else None
    return loss if penalty is None else loss + penalty


class _Headed:
    """What a model with a head has beside its forward pass: how it is made, saved and resized."""

    spec: HeadSpec
    base: type
    """The class of transformers."""
    return_logits: bool = False
    """Whether `forward` returns log-probabilities beside a loss; the metrics of a ``Trainer`` need them."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        model: Any = super()
        model.__init__(config, *args, **kwargs)
        _check_fit(self, model.get_output_embeddings())
        spec = self.spec
        put_head(self, WithheldStates(heads.build(spec["head"], **spec["settings"]), scale=spec["scale"]))
        self.post_init()  # type: ignore[attr-defined]

    @property
    def head(self) -> Head:
        """The head."""
        return self.get_output_embeddings().head

    def get_output_embeddings(self) -> WithheldStates:
        """Return the output layer."""
        layer: WithheldStates = getattr(self, self.spec["layer"])
        return layer

    def __reduce__(self) -> tuple[Any, ...]:
        """Make the model picklable, although its class has no name in a module."""
        return _empty, (self.base, self.spec), vars(self)

    def save_pretrained(self, save_directory: Any, is_main_process: bool = True, **kwargs: Any) -> None:
        """Write the model and its head as safetensors and JSON; see ``PreTrainedModel.save_pretrained``.

        Raises:
            ConfigurationError: for a variant of the file names, which is not read, or a model with an adapter, of
                which transformers saves nothing else.
            OutputError: for a path that cannot be a folder.
        """
        model: Any = super()
        if kwargs.get("variant") is not None:
            raise ConfigurationError("variant gives the weights a name that is not read: leave it out")
        if getattr(self, "_hf_peft_config_loaded", False):
            raise ConfigurationError("transformers saves only the adapter of this model: merge it into the model first")
        make_folder(Path(save_directory))
        config: Any = self.config  # type: ignore[attr-defined]
        plain: Any = type(config)
        setattr(config, MARK, {**self.spec, "version": __version__})
        config.__class__ = headed_config(plain)
        try:
            model.save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        finally:
            config.__class__ = plain
            delattr(config, MARK)

    def set_output_embeddings(self, layer: nn.Module) -> None:
        """Refuse an output layer without a head."""
        if not isinstance(layer, WithheldStates):
            raise ConfigurationError(
                "this model has a head: change the output layer of the plain model, before with_head"
            )
        setattr(self, self.spec["layer"], layer)

    def resize_token_embeddings(self, *sizes: Any, **options: Any) -> nn.Embedding:
        """Change the number of tokens, as ``PreTrainedModel.resize_token_embeddings`` does for a linear output layer.

        Input embeddings, and W where it is tied to them, are those of the model that `with_head` was given, too.
        """
        old = self.head
        plain = share_weights(cast(nn.Module, self), self.base)
        plain.config = copy.deepcopy(plain.config)
        plain.config.tie_word_embeddings = self.spec["tied_to"] is not None
        layer = nn.Linear(old.embedding_size, old.vocab_size, bias=False, device="meta")
        layer.weight, layer.bias = old.weight, cast(nn.Parameter, old.bias)
        setattr(plain, self.spec["layer"], layer)
        del plain._tied_weights_keys  # the class has those of the linear layer
        plain.all_tied_weights_keys = plain.get_expanded_tied_weights_keys(all_submodels=False)
        embeddings: nn.Embedding = plain.resize_token_embeddings(*sizes, **options)
        layer = plain.get_output_embeddings()
        if layer.out_features != old.vocab_size:
            self.set_input_embeddings(embeddings)  # type: ignore[attr-defined]
            self.config.get_text_config().vocab_size = layer.out_features  # type: ignore[attr-defined]
            head = _resized(old, self.spec["head"], layer)
            self.spec = {**self.spec, "settings": {**self.spec["settings"], "vocab_size": layer.out_features}}
            put_head(self, WithheldStates(head, scale=self.spec["scale"]).train(old.training))
        return embeddings


def _resized(old: Head, name: str, layer: Any) -> Head:
    """Return a head with the embeddings and biases of a linear layer, and all other weights of another head."""
    with torch.device(old.weight.device):
        head = heads.build(name, **{**old.settings, "vocab_size": layer.out_features}).to(old.weight.dtype)
    head.weight, head.bias = layer.weight, layer.bias
    others = {key: each for key, each in old.state_dict(keep_vars=True).items() if key not in ("weight", "bias")}
    for key, each in head.state_dict(keep_vars=True).items():
        if (other := others.get(key)) is not None:
            common = tuple(slice(min(sizes)) for sizes in zip(each.shape, other.shape, strict=True))
            each.data[common] = other.data[common]
            each.requires_grad_(other.requires_grad)
    return head


def share_weights(model: nn.Module, kind: Any) -> Any:
    """Return a model of another class that shares all modules and weights of ``model``, which is not changed."""
    copied: Any = kind.__new__(kind)
    # A compiled forward pass is a function of the other model.
    entries = {name: value for name, value in vars(model).items() if name not in COMPILED}
    vars(copied).update({name: value.copy() if isinstance(value, dict) else value for name, value in entries.items()})
    return copied


def _empty(base: type, spec: HeadSpec) -> Any:
    """Return a model without modules, for pickle to fill."""
    kind = headed_class(base, spec)
    return kind.__new__(kind)


def _check_fit(model: Any, layer: nn.Module) -> None:
    """Refuse a head that was saved for another model than the plain one, whose output layer is given."""
    spec: HeadSpec = model.spec
    embeddings = model.get_input_embeddings().weight
    fitting: list[tuple[str, Any, list[Any]]] = [
        ("layer", spec["layer"], [key for key, module in model.named_modules() if module is layer]),
        ("tied_to", spec["tied_to"], [None, *(key for key, each in model.named_parameters() if each is embeddings)]),
        ("settings.hidden_size", spec["settings"].get("hidden_size"), [getattr(layer, "in_features", None)]),
        ("settings.vocab_size", spec["settings"].get("vocab_size"), [getattr(layer, "out_features", None)]),
    ]
    for place, value, allowed in fitting:
        if value not in allowed:
            raise SourceError(
                f"the head that was saved is of another model: its {place} is {value!r}, not {allowed[-1]!r}; save "
                "the model again"
            )


def put_head(model: Any, layer: WithheldStates) -> None:
    """Give a model of a headed class its output layer, and say which of its parameters are one."""
    name, tied_to = model.spec["layer"], model.spec["tied_to"]
    setattr(model, name, layer)
    tied = {key: each for key, each in (model._tied_weights_keys or {}).items() if not key.startswith(f"{name}.")}
    model._tied_weights_keys = tied if tied_to is None else {**tied, f"{name}.head.weight": tied_to}
    model.all_tied_weights_keys = model.get_expanded_tied_weights_keys(all_submodels=False)
