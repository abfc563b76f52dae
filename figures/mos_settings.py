"""Yang et al. 2018, tables 8 to 10: their settings, and those of the presets here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, final

import pandas as pd

from softmax_bottleneck import backbones
from softmax_bottleneck.evaluation.dynamic import published_dynamic
from softmax_bottleneck.evaluation.statistics import BATCH_SIZE
from softmax_bottleneck.published import tables
from softmax_bottleneck.training import PRESETS

from .base import Table
from .published_table import COLUMNS, CORPORA, cell
from .results import Results


class MoSSettings(Table):
    """A table of settings; its subclasses say which."""

    number: ClassVar[str]
    presets: ClassVar[Mapping[str, str]]
    """Preset of each column."""
    places: ClassVar[Mapping[str, tuple[str, str]]]
    """Section of the preset and name in it, of each row."""
    first = "setting"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return the published settings and those used here; see `Table`."""
        (published,) = tables("mos", self.number)
        return pd.DataFrame(
            [
                one
                for row in published.rows
                for column, value in zip(published.columns, row.values, strict=True)
                for heading in [CORPORA.get(column, column)]
                for one in (
                    cell(row.name, heading, "published", value, source=published.source),
                    cell(row.name, heading, "here", self.here(row.name, column), source=self.presets[column]),
                )
            ],
            columns=COLUMNS,
        )

    def here(self, row: str, column: str) -> str:
        """Return the setting used here; empty if the preset's model has none of that name."""
        section, name = self.places[row]
        return _text(_sections(self.presets[column])[section].get(name, ""))


@final
class MoSTable8(MoSSettings):
    """Settings of MoS on Penn Treebank (PTB) and WikiText-2 (WT2; Yang et al. 2018, table 8), and those of the presets
    ptb-mos and wt2-mos, which are those of the authors' published code. In the two rows of embedding and hidden-state
    dropout the printed table has PTB's values under WT2, and WT2's under PTB.
    """

    number = "8"
    presets: ClassVar = {"ptb": "ptb-mos", "wikitext-2": "wt2-mos"}
    places: ClassVar = {
        "Learning rate": ("optimizer", "learning_rate"),
        "Batch size": ("training", "batch_size"),
        "Embedding size": ("head", "embedding_size"),
        "RNN hidden sizes": ("backbone", "hidden_sizes"),
        "Number of mixture components": ("head", "components"),
        "Word-level V-dropout": ("backbone", "dropout_embedding"),
        "Embedding V-dropout": ("backbone", "dropout_input"),
        "Hidden state V-dropout": ("backbone", "dropout_hidden"),
        "Recurrent weight dropout": ("backbone", "weight_drop"),
        "Context vector V-dropout": ("head", "context_dropout"),
    }


@final
class MoSTable9(MoSSettings):
    """Settings of the dynamic evaluation of MoS (Yang et al. 2018, table 9), and those of 'bottleneck eval --dynamic':
    η is the learning rate, λ the decay. The batch size is that of the gradient statistics.
    """

    number = "9"
    presets: ClassVar = MoSTable8.presets

    def here(self, row: str, column: str) -> str:
        """Return the setting of `published_dynamic`, or the default batch size of the statistics."""
        return _text({"batch_size": BATCH_SIZE, **asdict(published_dynamic("mos", column))}[row])


@final
class MoSTable10(MoSSettings):
    """Settings of Softmax and MoS on the 1B Word data set (Yang et al. 2018, table 10), and those of the presets
    1b-softmax and 1b-mos7.
    """

    number = "10"
    presets: ClassVar = {"Softmax": "1b-softmax", "MoS-7": "1b-mos7"}
    places: ClassVar = {
        "Learning rate": ("optimizer", "learning_rate"),
        "Batch size": ("training", "batch_size"),
        "BPTT length": ("training", "bptt"),
        "Embedding size": ("head", "embedding_size"),
        "RNN hidden sizes": ("backbone", "hidden_sizes"),
        "Dropout rate": ("backbone", "dropout"),
    }


def _sections(preset: str) -> dict[str, dict[str, Any]]:
    """Return a preset's settings, and the defaults of its backbone where it has none."""
    config = PRESETS[preset].config.model_dump(mode="json")
    backbone = config["model"]["backbone"]
    settings = {name: value for name, value in backbone.items() if name != "name"}
    whole = asdict(backbones.find(backbone["name"]).Config(**settings))
    if "layers" in whole:
        whole["hidden_sizes"] = [whole["hidden_size"]] * whole["layers"]
    return {
        "training": config["training"],
        "optimizer": config["training"]["optimizer"],
        "head": config["model"]["head"],
        "backbone": whole,
    }


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
