"""Configuration files: JSON, TOML and YAML, and the ``config.json`` of a run."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from .. import heads
from ..core.json_file import parse_json
from ..errors import ConfigurationError
from ..language_models import backbones
from ..language_models.checkpoint import CONFIG, FORMAT
from .config import RunConfig, parse


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # the package has no types
    """YAML with the floats of version 1.2: PyYAML reads 1e-3, which has no point, as a text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), [*"-+0123456789"]
)


def _yaml(data: bytes) -> Any:
    try:
        return yaml.load(data.decode("utf-8-sig"), _Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def read(path: Path) -> RunConfig:
    """Return the configuration in a JSON, TOML or YAML file, or that of a run, given its ``config.json``.

    Raises:
        ConfigurationError: the file cannot be read, or holds an unknown key or a wrong value.
    """
    form, load = {
        ".toml": ("TOML", lambda data: tomllib.loads(data.decode("utf-8-sig"))),
        ".yaml": ("YAML", _yaml),
        ".yml": ("YAML", _yaml),
    }.get(path.suffix.lower(), ("JSON", parse_json))
    try:
        values = load(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"cannot read the configuration {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path} is not valid {form}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigurationError(f"{path} must hold settings by name, not a {type(values).__name__}")
    return configuration_of(values) if values.get("format") == FORMAT else parse(values, where=str(path))


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
