"""Named configurations, each with its command, cost and expected result; one file per family."""

from __future__ import annotations

from ...errors import ConfigurationError
from . import fast, laptop, one_billion, papers, text8
from .preset import Preset

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (*laptop.PRESETS, *papers.PRESETS, *fast.PRESETS, *text8.PRESETS, *one_billion.PRESETS)
}


def find(name: str) -> Preset:
    """Return the preset called ``name``; `ConfigurationError` lists the known ones."""
    if name not in PRESETS:
        raise ConfigurationError(f"unknown preset {name!r}; known presets are {', '.join(PRESETS)}")
    return PRESETS[name]


__all__ = ["PRESETS", "Preset", "find"]
