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
    """Return the optimizer in the code of AWD-LSTM and Yang et al. 2018: SGD at a constant rate, clipped at 0.25.

    Their weight decay acts on all weights including biases, which raises rare words over hundreds of epochs.
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


def one_cycle(epochs: int, learning_rate: float) -> dict[str, Any]:
    """Return AdamW with one cosine cycle and bfloat16 products, for few epochs; `fast` has the measurements."""
    return {
        "epochs": epochs,
        "batch_size": 32,
        "bptt": 35,
        "bptt_deviation": 5.0,
        "precision": "bfloat16",
        "optimizer": {
            "name": "adamw",
            "learning_rate": learning_rate,
            "schedule": "cosine",
            "warmup_steps": 200,
            "weight_decay": 0.01,
            "clip": 0.25,
        },
    }


def plain_lstm(embedding_size: int, *, hidden_size: int, layers: int, dropout: float = 0.0) -> dict[str, Any]:
    """Return a backbone of LSTM layers."""
    sizes = {"embedding_size": embedding_size, "hidden_size": hidden_size, "layers": layers}
    return {"name": "lstm", **sizes, "dropout": dropout}


def published_text(result: str) -> str:
    """Return the expected result of a preset of the papers; see `expectation`."""
    text = expectation(result)
    return text if text.startswith("no ") else f"published: {text}"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A configuration with its header: ``bottleneck train --preset NAME --out RUN``."""

    family: str
    """Prefix of its name."""
    head: str
    """Registered name of its head."""
    summary: str
    """Model and corpus in a few words."""
    cost: str
    """Expected time, and the machine."""
    expected: str
    """Expected result and its source: the table of a published number, or that it was measured."""
    corpus: str
    """The name of its corpus."""
    backbone: dict[str, Any]
    """Settings of the backbone, including its name; the head has the same embedding size."""
    settings: dict[str, Any]
    """The head's other settings."""
    training: dict[str, Any]
    """The section ``training`` of its configuration."""
    variant: str = ""
    """Suffix of its name; if empty, the name of the head."""
    initial: str = ""
    """Preset whose run it starts from, given as ``initial`` of its ``config``; empty for random weights."""

    @property
    def name(self) -> str:
        """Name for ``--preset``."""
        return f"{self.family}-{self.model}"

    @property
    def model(self) -> str:
        """Name within the family, of its run and its report."""
        return self.variant or self.head

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
        head = {"name": self.head, "embedding_size": self.backbone["embedding_size"], **self.settings}
        model = {"backbone": self.backbone, "head": head}
        values = {"corpus": self.corpus, "model": model, "training": self.training}
        return parse(values, where=f"preset {self.name}")
