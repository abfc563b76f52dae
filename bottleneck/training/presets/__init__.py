"""Named configurations, each with its command, cost and expected result; one TOML file for each group of families.

A file holds a table for each family of presets, with the family's presets by model in ``presets``. A preset has the
settings of its family, then those of its ``kind`` among the family's ``kinds``, then its own. A family that is ``like``
another has the other's settings where it has none. The texts of a preset name other values of it in braces:
``{minutes}``, ``{head}``, ``{components}``; ``{published}`` stands for the published numbers of its model.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

import torch

from ...corpora import catalogue
from ...errors import ConfigurationError, look_up, meant
from ...language_models.model import LanguageModel
from ...results.published import expectation
from ..config import RunConfig, merged, parse

FILES = ("laptop", "papers", "fast", "afternoon", "text8", "one_billion", "switchboard")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A configuration with its header: ``bottleneck train --preset NAME --out RUN``."""

    family: str
    """Prefix of its name."""
    model: str
    """Name within the family, of its run and its report."""
    summary: str
    """Model and corpus in a few words."""
    cost: str
    """Expected time, and the machine."""
    expected: str
    """Expected result and its source: the table of a published number, or that it was measured."""
    values: Mapping[str, Any]
    """Its configuration as plain values."""
    initial: str = ""
    """Preset whose run it starts from, given as ``initial`` of its ``config``; empty for random weights."""

    @property
    def name(self) -> str:
        """Name for ``--preset``."""
        return f"{self.family}-{self.model}"

    @property
    def command(self) -> str:
        """Command that trains it."""
        start = f" --set initial=runs/{self.initial}" if self.initial else ""
        return f"bottleneck train --preset {self.name}{start} --out runs/{self.name}"

    def parameters(self, vocab_size: int | None = None) -> int | None:
        """Return the model's number of parameters, or ``None`` when its corpus's vocabulary size is unknown."""
        size = vocab_size or {info.name: info.vocabulary_size for info in catalogue()}.get(self.config.corpus)
        if size is None:
            return None
        with torch.device("meta"):
            return LanguageModel(self.config.model, vocab_size=size).parameter_count()

    @property
    def config(self) -> RunConfig:
        """The checked configuration."""
        return parse(self.values, where=f"preset {self.name}")

    @property
    def head(self) -> str:
        """Registered name of its head."""
        return str(self.values["model"]["head"]["name"])


def _read() -> Iterator[Preset]:
    for file in FILES:
        families = tomllib.loads(files(__package__).joinpath(f"{file}.toml").read_text(encoding="utf-8"))
        for family, table in families.items():
            shared = {**families.get(table.get("like"), {}), **table}
            for model, own in table["presets"].items():
                kind = shared.get("kinds", {}).get(own.get("kind"), {})
                yield _preset(family, model, merged(merged(shared, kind), own))


def _preset(family: str, model: str, table: dict[str, Any]) -> Preset:
    table = {"head": model, "settings": {}, "published": f"{family}/{model}", **table}
    numbers = expectation(table["published"])
    published = numbers if numbers.startswith("no ") else f"published: {numbers}"
    words = {**table["backbone"], **table["settings"], **table, "published": published}
    texts = {key: table.get(key, "").format_map(words) for key in ("summary", "cost", "expected", "initial")}
    head = {"name": table["head"], "embedding_size": table["backbone"]["embedding_size"], **table["settings"]}
    sections = {"model": {"backbone": table["backbone"], "head": head}, "training": table["training"]}
    return Preset(family=family, model=model, **texts, values={"corpus": table["corpus"], **sections})


PRESETS: dict[str, Preset] = {preset.name: preset for preset in _read()}


def find(name: str) -> Preset:
    """Return the preset called ``name``; `ConfigurationError` lists the known ones."""
    return look_up("preset", name, PRESETS)


def family(name: str) -> dict[str, Preset]:
    """Return the presets of a family by model; `ConfigurationError` lists the known families."""
    presets = {preset.model: preset for preset in PRESETS.values() if preset.family == name}
    if not presets:
        families = list(dict.fromkeys(preset.family for preset in PRESETS.values()))
        known = f"known families are {', '.join(families)}{meant(name, families)}"
        raise ConfigurationError(f"unknown family of presets {name!r}; {known}")
    return presets


def matching(pattern: str) -> list[Preset]:
    """Return the presets whose names match a pattern of the shell; `ConfigurationError` when there are none.

    >>> [preset.name for preset in matching("demo-mo?")]
    ['demo-moc', 'demo-mos']
    """
    presets = [preset for name, preset in PRESETS.items() if fnmatchcase(name, pattern)]
    if not presets:
        families = ", ".join(dict.fromkeys(f"'{preset.family}-*'" for preset in PRESETS.values()))
        raise ConfigurationError(
            f"no preset is called {pattern!r}; give a name, or a pattern such as {families}{meant(pattern, PRESETS)}"
        )
    return presets


def describe(presets: Iterable[Preset]) -> list[dict[str, Any]]:
    """Return all that is known of presets as plain values, ready for JSON."""
    vocab_sizes = {info.name: info.vocabulary_size for info in catalogue()}
    return [
        {
            "name": preset.name,
            "summary": preset.summary,
            "command": preset.command,
            "parameters": preset.parameters(vocab_sizes.get(preset.config.corpus)),
            "corpus": preset.config.corpus,
            "cost": preset.cost,
            "expected": preset.expected,
            "config": preset.config.model_dump(mode="json"),
        }
        for preset in presets
    ]
