"""The configuration of a run, everything that its numbers depend on, and the files it is read from."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .. import heads
from ..core.json_file import first_fault, parse_json
from ..errors import ConfigurationError, meant
from ..language_models import backbones
from ..language_models.checkpoint import CONFIG, FORMAT, check_hashes, read_config
from ..language_models.model import ModelConfig
from ..results.base import flat

Number = Annotated[int, Field(ge=0, le=10**9)]
Positive = Annotated[int, Field(ge=1, le=10**9)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class OptimizerConfig(_Section):
    """Settings of the optimizer."""

    name: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = Field(default=2e-3, gt=0)
    schedule: Literal["cosine", "constant"] = "cosine"
    """Learning-rate schedule: ``cosine`` falls to zero one step after the last; both rise linearly over the warm-up."""
    warmup_steps: Number = 100
    """Steps over which the learning rate rises; at most all steps of the run."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay, which does not act on pointwise functions (see `PLIF.parameter_settings`)."""
    decayed: Literal["matrices", "all"] = "matrices"
    """Weights that decay; ``all`` includes biases, as in the code of AWD-LSTM and of Yang et al. 2018."""
    clip: float = Field(default=1.0, gt=0)
    """Largest norm of the gradient of all weights together."""


class AveragingConfig(_Section):
    """Settings of weight averaging; once it starts, the averaged weights are evaluated."""

    start: Literal["never", "non-monotone", "epoch"] = "never"
    """Start of averaging. ``non-monotone``: when the validation loss is above the best of all but the last ``interval``
    validations (NT-ASGD, Merity et al. 2018); ``epoch``: after ``epoch`` epochs (ET-ASGD, Parthiban et al. 2021)."""
    interval: Number = 5
    latest: Positive | None = None
    """Epochs after which averaging starts even if no validation was worse; ``None`` for no limit, as published."""
    epoch: Number = 0


class TrainingConfig(_Section):
    """Length of training, batches of text, precision, and validation."""

    epochs: int = Field(default=8, ge=1, le=100_000)
    batch_size: Positive = 20
    """Number of parallel texts that the corpus is cut into."""
    bptt: Positive = 35
    """Tokens of each text in a step; gradients stop at the start of the step, and the state is carried over."""
    bptt_deviation: float = Field(default=0.0, ge=0, le=1e6)
    """Standard deviation of random segment lengths around ``bptt``; the learning rate is scaled in proportion."""
    loss_fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of a step's predictions whose loss is computed, drawn at random in every step. Its mean estimates that of
    all without bias; the backbone reads all tokens. Less than 1 saves time where the output layer is most of the work,
    as with a mixture over a large vocabulary."""
    micro_batch_size: Positive | None = None
    """Texts of a batch that are processed at once, with gradients summed; fewer take less memory. ``None`` for all.

    Each part of a batch draws its own dropout masks, including those that its texts share (hidden-to-hidden weights and
    words), and its own predictions (``loss_fraction``), so a run that has begun is continued with the same number."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Type of the matrix products in a training step; weights, losses and all measurements are float32. On a GPU the
    recurrent layers are too; in training they use the TF32 products that torch allows cuDNN."""
    compile: bool = False
    """Whether torch compiles the training step."""
    unigram_bias: bool = True
    """Whether the output bias starts at the token frequencies of the training text (see `Head.init_bias`)."""
    save_every: Positive = 200
    """Steps between saved states; the state is also saved at the end of every epoch."""
    validations: Positive = 1
    """Validations per epoch, the last at its end. NT-ASGD's logging interval L is an epoch divided by this number."""
    keep_checkpoints: bool = False
    """Whether to keep the weights of every validation, each as its own run, to measure the rank over training
    (`checkpoint.keep_checkpoint`)."""
    stop_interval: Number | None = None
    """Stop early when the validation loss is above the best of all but the last so many; ``None`` for never. If
    weights are averaged, only the losses of averaged weights count."""
    averaging: AveragingConfig = AveragingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()


class RunConfig(_Section):
    """One training run; its corpus, model, training settings and seed determine all its numbers."""

    corpus: str = "python-docs"
    seed: int = Field(default=0, ge=0, lt=2**64)
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    initial: str | None = None
    """Run of the same model whose best weights training starts from; ``None`` for random weights."""

    def replace(self, **changes: Any) -> RunConfig:
        """Return this configuration with other values: whole sections, or mappings with some of their keys.

        Args:
            changes: new values by name. A head or backbone with another ``name`` starts from its own defaults.

        Raises:
            ConfigurationError: for an unknown key, or a value out of range.

        Example:
            >>> changed = RunConfig().replace(training={"epochs": 1}, model={"head": {"name": "mos", "components": 3}})
            >>> changed.training.epochs, changed.model.head.name, changed.training.batch_size
            (1, 'mos', 20)
        """
        return parse(merged(self.model_dump(mode="json"), changes), where="replace")


def merged(values: Mapping[str, Any], changes: Mapping[str, Any], *, section: str = "") -> dict[str, Any]:
    """Return nested values with some of them changed; another head or backbone does not keep settings of the old."""
    if section in ("head", "backbone") and "name" in changes and changes["name"] != values["name"]:
        return dict(changes)
    inside = [key for key, new in changes.items() if isinstance(new, Mapping) and isinstance(values.get(key), dict)]
    return {**values, **changes, **{key: merged(values[key], changes[key], section=key) for key in inside}}


def parse(values: Mapping[str, Any], *, where: str) -> RunConfig:
    """Return the checked configuration.

    Raises:
        ConfigurationError: for the first key that is unknown or has a wrong value; ``where`` names the file or option
            that it came from.
    """
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        _explain(error, where, values)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def override(config: RunConfig, settings: Iterable[str]) -> RunConfig:
    """Return ``config`` with ``key=value`` settings applied; keys are dotted paths.

    ``head.…`` and ``backbone.…`` are short for ``model.head.…`` and ``model.backbone.…``.

    Example:
        >>> override(RunConfig(), ["training.epochs=3", "head.name=mos"]).model.head.name
        'mos'
    """
    values = config.model_dump(mode="json")
    # A component's name is applied first, because it determines which other keys exist.
    for setting in sorted(settings, key=lambda text: not text.partition("=")[0].endswith(".name")):
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise ConfigurationError(f"--set takes key=value, as in training.epochs=3; {setting!r} has no '='")
        if key.startswith(("head.", "backbone.")):
            key = f"model.{key}"
        changes = _value(text)
        for part in reversed(key.split(".")):
            changes = {part: changes}
        values = merged(values, changes)
    return parse(values, where="--set")


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the dotted keys in which two configurations differ, with both values."""
    before, after = flat(old), flat(new)
    return [
        f"{key} (was {before.get(key)!r}, now {after.get(key)!r})"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def _value(text: str) -> Any:
    """Parse a value as JSON, or return the text if it is not JSON."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def _explain(error: ValidationError, where: str, values: Mapping[str, Any]) -> NoReturn:
    first = error.errors()[0]
    if first["type"] != "extra_forbidden":
        raise ConfigurationError(f"{where}: {first_fault(error)}") from None
    section: Any = RunConfig
    for part in first["loc"][:-1]:
        section = section.model_fields[str(part)].annotation
    key, known = ".".join(map(str, first["loc"])), section.model_fields
    names = flat({**RunConfig().model_dump(mode="json"), **values})
    near = meant(key, [name for name in names if not f"{name}.".startswith(f"{key}.")]) or meant(
        key.split(".")[-1], known
    )
    raise ConfigurationError(f"{where}: unknown key {key!r}; known keys there are {', '.join(known)}{near}") from None


def read(path: Path) -> RunConfig:
    """Return the configuration in a TOML file, or that of a run, given its ``config.json``.

    Raises:
        ConfigurationError: the file cannot be read, or holds an unknown key or a wrong value.
    """
    form, load = ("JSON", parse_json) if path.suffix.lower() == ".json" else ("TOML", tomllib.loads)
    try:
        values = load(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"cannot read the configuration {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path} is not valid {form}: {' '.join(str(error).split())}") from error
    if load is tomllib.loads:
        return parse(values, where=str(path))
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ConfigurationError(f"{path} is not the {CONFIG} of a run: write a configuration as TOML")
    return configuration_of(values)


def as_toml(values: Mapping[str, Any], *, section: str = "") -> str:
    """Return settings as TOML, without those that are ``None``.

    Example:
        >>> print(as_toml({"seed": 0, "model": {"head": {"name": "mos", "bias": True}}}), end="")
        seed = 0
        [model.head]
        name = "mos"
        bias = true
    """
    sections = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    own = {key: value for key, value in values.items() if key not in sections and value is not None}
    lines = [f"[{section}]\n"] if section and own else []
    lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in own.items()]
    lines += [as_toml(value, section=f"{section}.{key}".lstrip(".")) for key, value in sections.items()]
    return "".join(lines)


def configuration_of(saved: Mapping[str, Any]) -> RunConfig:
    """Return the configuration that a run's ``config.json`` records."""
    values = {key: saved[key] for key in RunConfig.model_fields if key in saved}
    if isinstance(corpus := values.get("corpus"), Mapping):
        values["corpus"] = corpus.get("name")
    return parse(values, where=CONFIG)


def complete(config: RunConfig) -> dict[str, Any]:
    """Return a configuration as plain values, with all settings of its head and backbone."""
    values = config.model_dump(mode="json")
    head, backbone = values["model"]["head"], values["model"]["backbone"]
    head = {"name": None, **{key: each.default for key, each in heads.parameters(head["name"]).items()}, **head}
    backbone = {"name": None, **asdict(backbones.find(backbone["name"]).Config()), **backbone}
    model = {**values["model"], "backbone": backbone, "head": head}
    plain: dict[str, Any] = json.loads(json.dumps({**values, "model": model}))
    return plain


def finetuning(run: str | Path) -> RunConfig:
    """Return a run's configuration for finetuning: it starts from the run's weights and averages from the first step.

    The optimizer is the run's own; with SGD (stochastic gradient descent) this is averaged SGD, ASGD. Training stops at
    the criterion that starts non-monotonically triggered ASGD, NT-ASGD (Merity et al. 2018, §3), with the run's own
    interval. `RunError` for a run that is missing, unfinished or damaged.
    """
    config = configuration_of(read_config(Path(run)))
    check_hashes(Path(run))
    stage = {
        "averaging": {"start": "epoch", "epoch": 0},
        "stop_interval": config.training.averaging.interval,
        "optimizer": {"schedule": "constant", "warmup_steps": 0},
    }
    return config.replace(initial=str(Path(run).resolve()), training=stage)
