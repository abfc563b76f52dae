"""Named configurations, each with its command, what it costs and what to expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..corpora import catalogue
from ..errors import ConfigurationError
from ..language_model import LanguageModel
from .config import RunConfig, parse


@dataclass(frozen=True)
class Preset:
    """A configuration with its header: ``bottleneck train --preset NAME --out RUN``."""

    family: str
    """What its name begins with; presets of one family differ in the head alone."""
    head: str
    """The registered name of its head."""
    summary: str
    """What is trained, on what."""
    cost: str
    """Expected time, and on which machine."""
    expected: str
    """What comes out, and who says so."""
    values: dict[str, Any]

    @property
    def name(self) -> str:
        """What ``--preset`` takes."""
        return f"{self.family}-{self.head}"

    def parameters(self) -> int | None:
        """Return the model's number of parameters, or ``None`` when its corpus's vocabulary size is unknown."""
        sizes = {info.name: info.vocabulary_size for info in catalogue()}
        size = sizes.get(self.config.corpus)
        if size is None:
            return None
        with torch.device("meta"):
            return LanguageModel(self.config.model, vocab_size=size).parameter_count()

    @property
    def config(self) -> RunConfig:
        """The checked configuration."""
        return parse(self.values, where=f"preset {self.name}")


LAPTOP_HEADS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "moc": {"components": 4},
    "mos": {"components": 4},
    "lms-plif": {"knots": 100_000},
    "sigsoftmax": {},
}
"""The heads of the small presets; K = 4 keeps their models about equal in size and an hour long."""


PTB_SMALL: dict[str, tuple[int, str, str]] = {
    "softmax": (10, "96.2", "102"),
    "moc": (11, "95.3", "102"),
    "mos": (27, "93.5", "9,661 (1,421 to 10,000)"),
    "lms-plif": (21, "104.2", "9,526 (1,263 to 10,000)"),
    "sigsoftmax": (11, "96.2", "111 (102 to 314)"),
}
"""Minutes of training steps, test perplexity and rank of ``ptb-small-*``, from figures/results/ptb-small."""


def _demo(head: str, settings: dict[str, Any]) -> Preset:
    """``demo-*``: d = 24 against M ≈ 2,650, the bottleneck at its plainest."""
    model = {
        "backbone": {"name": "lstm", "embedding_size": 24, "hidden_size": 128, "layers": 1, "dropout": 0.3},
        "head": {"name": head, "embedding_size": 24, **settings},
    }
    training = {"epochs": 6, "batch_size": 16, "bptt": 35, "optimizer": {"learning_rate": 0.01}}
    return Preset(
        family="demo",
        head=head,
        summary=f"LSTM 128 with a {head} head, d = 24, on python-docs",
        cost="half a minute on 2 CPU cores",
        expected="what 'bottleneck demo' prints",
        values={"corpus": "python-docs", "model": model, "training": training},
    )


def _ptb_small(head: str, settings: dict[str, Any]) -> Preset:
    """``ptb-small-*``: Penn Treebank on a laptop."""
    model = {
        "backbone": {"name": "lstm", "embedding_size": 100, "hidden_size": 200, "layers": 2, "dropout": 0.2},
        "head": {"name": head, "embedding_size": 100, **settings},
    }
    training = {"epochs": 6, "batch_size": 20, "bptt": 35, "optimizer": {"learning_rate": 0.005}}
    return Preset(
        family="ptb-small",
        head=head,
        summary=f"LSTM 2 × 200 with a {head} head, d = 100, on Penn Treebank",
        cost=f"{PTB_SMALL[head][0]} minutes on 2 CPU cores (x86-64 with AVX-512)",
        expected=f"test perplexity {PTB_SMALL[head][1]}, rank {PTB_SMALL[head][2]} (measured, one seed)",
        values={"corpus": "ptb", "model": model, "training": training},
    )


DEMO_HEADS = ("softmax", "moc", "mos", "lms-plif")
"""The heads of the demo."""

DEMO_SETTINGS: dict[str, dict[str, Any]] = {"lms-plif": {"knots": 10_000}}
"""What keeps the demo's models about equal in size: 100,000 knots would be two thirds of one."""

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        *(_demo(head, LAPTOP_HEADS[head] | DEMO_SETTINGS.get(head, {})) for head in DEMO_HEADS),
        *(_ptb_small(head, settings) for head, settings in LAPTOP_HEADS.items()),
    )
}


def find(name: str) -> Preset:
    """Return the preset called ``name``; `ConfigurationError` lists the known ones."""
    if name not in PRESETS:
        raise ConfigurationError(f"unknown preset {name!r}; known presets are {', '.join(PRESETS)}")
    return PRESETS[name]
