"""Named configurations, each with its command, cost and expected result; one file per family."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

from ...corpora import catalogue
from ...errors import ConfigurationError, meant, unknown
from . import fast, laptop, one_billion, papers, switchboard, text8
from .preset import Preset

FAMILIES = laptop, papers, fast, text8, one_billion, switchboard

PRESETS: dict[str, Preset] = {preset.name: preset for preset in chain(*(family.PRESETS for family in FAMILIES))}


def find(name: str) -> Preset:
    """Return the preset called ``name``; `ConfigurationError` lists the known ones."""
    if name not in PRESETS:
        raise ConfigurationError(unknown("preset", name, PRESETS))
    return PRESETS[name]


def family(name: str) -> dict[str, Preset]:
    """Return the presets of a family by model; `ConfigurationError` lists the known families."""
    presets = {preset.model: preset for preset in PRESETS.values() if preset.family == name}
    if not presets:
        families = list(dict.fromkeys(preset.family for preset in PRESETS.values()))
        known = f"known families are {', '.join(families)}{meant(name, families)}"
        raise ConfigurationError(f"there is no family of presets {name!r}; {known}")
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


def described(presets: Iterable[Preset]) -> list[dict[str, Any]]:
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


__all__ = ["PRESETS", "Preset", "described", "family", "find", "matching"]
