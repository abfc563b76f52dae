"""A named configuration with its header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...corpora import catalogue
from ...language_model import LanguageModel
from ...published import expectation
from ..config import RunConfig, parse


def plain_sgd(learning_rate: float, *, weight_decay: float = 1.2e-6) -> dict[str, Any]:
    """Return the optimizer of AWD-LSTM and the MoS paper's code: SGD at one rate, its gradients clipped at 0.25.

    Their decay is of all weights, biases included: over hundreds of epochs it raises the least frequent words.
    """
    return {
        "name": "sgd",
        "learning_rate": learning_rate,
        "schedule": "constant",
        "warmup_steps": 0,
        "weight_decay": weight_decay,
        "decayed": "all",
        "clip": 0.25,
    }


def plain_lstm(embedding_size: int, *, hidden_size: int, layers: int, dropout: float = 0.0) -> dict[str, Any]:
    """Return a backbone of LSTM layers."""
    sizes = {"embedding_size": embedding_size, "hidden_size": hidden_size, "layers": layers}
    return {"name": "lstm", **sizes, "dropout": dropout}


def published_text(result: str) -> str:
    """Return what a preset of the papers expects: see `expectation`."""
    text = expectation(result)
    return text if text.startswith("no ") else f"published: {text}"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A configuration with its header: ``bottleneck train --preset NAME --out RUN``."""

    family: str
    """What its name begins with."""
    head: str
    """The registered name of its head."""
    summary: str
    """What is trained, on what."""
    cost: str
    """Expected time, and on which machine."""
    expected: str
    """What comes out, and who says so: a published number names its table, a measured one says so."""
    corpus: str
    """The name of its corpus."""
    backbone: dict[str, Any]
    """Settings of the backbone, its name among them; the head has the same embedding size."""
    settings: dict[str, Any]
    """The head's other settings."""
    training: dict[str, Any]
    """The section ``training`` of its configuration."""
    variant: str = ""
    """What its name ends with; empty for the head's name."""
    initial: str = ""
    """The preset whose run it starts from, to be given as ``initial`` of its ``config``; empty for drawn weights."""

    @property
    def name(self) -> str:
        """What ``--preset`` takes."""
        return f"{self.family}-{self.variant or self.head}"

    @property
    def command(self) -> str:
        """What trains it."""
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
        head = {"name": self.head, "embedding_size": self.backbone["embedding_size"], **self.settings}
        model = {"backbone": self.backbone, "head": head}
        values = {"corpus": self.corpus, "model": model, "training": self.training}
        return parse(values, where=f"preset {self.name}")
