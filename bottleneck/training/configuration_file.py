"""Configuration files: JSON, TOML and YAML, and the ``config.json`` of a run."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

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


def _yaml(text: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


class Format(NamedTuple):
    """A format of configuration files."""

    name: str
    document: str
    """What a file must hold, with its article."""
    load: Callable[[str], Any]


JSON, TOML, YAML = (
    Format("JSON", "a JSON object", json.loads),
    Format("TOML", "a TOML table", tomllib.loads),
    Format("YAML", "a YAML mapping", _yaml),
)
FORMATS = {".toml": TOML, ".yaml": YAML, ".yml": YAML}
"""Formats by the file's suffix; files of other suffixes are JSON."""


def read(path: Path) -> RunConfig:
    """Return the configuration in a JSON, TOML or YAML file, or that of a run, given its ``config.json``.

    Raises:
        ConfigurationError: the file cannot be read, or holds an unknown key or a wrong value.
    """
    form = FORMATS.get(path.suffix.lower(), JSON)
    try:
        text = path.read_bytes()
        values = parse_json(text) if form is JSON else form.load(text.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"cannot read the configuration {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path} is not valid {form.name}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigurationError(f"{path} must hold {form.document}, not a {type(values).__name__}")
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
