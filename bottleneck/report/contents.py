"""What a page is about: models with their measurements, and comparisons of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from ..measure.report import RankReport
from ..results.plotting import HEADS, Look, head_of, looks

Plain = Mapping[str, Any]
ON_DARK = {"#0173b2": "#2a89be", "#222222": "#dddddd"}
"""Colours whose contrast with a dark page is below 4.5 (WCAG 2.2, success criterion 1.4.3), and what replaces them."""
RAMP, RAMP_ON_DARK = (0.0, 0.65), (0.4, 0.95)
"""First and last place in the colour map ``plasma`` of models of one head: from dark to light, contrast above 3."""
MOST_NAMES = 5
"""Largest number of models and of texts that a title lists."""


@dataclass(frozen=True, eq=False)
class Model:
    """A rank report, with what else is known of its model."""

    report: RankReport
    origin: str
    """Where the measurement comes from, as people read it."""
    key: str = ""
    """``FAMILY/NAME`` of the preset FAMILY-NAME, if the results lie in such a folder."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Other measured numbers, by name: ``"test perplexity"``, ``"test pairwise KL"``, ``"parameters"``, …."""
    drawn: Plain | None = None
    """What `PairwiseKLD.to_dict` returns for drawn pairs, with their histogram."""
    label: str = ""
    """Name to show in place of the report's."""

    @property
    def shape(self) -> tuple[int, int]:
        """(T, M)."""
        return self.report.contexts, self.report.vocab

    @property
    def source(self) -> Plain:
        """What was measured."""
        return self.report.source

    @property
    def head(self) -> str | None:
        """The registered name of the output layer, if it has a look of its own."""
        head = self.source.get("head")
        return head if head in HEADS else None

    @property
    def split(self) -> str:
        """The split of the corpus that was measured."""
        return str(self.source.get("split") or "test")

    @property
    def name(self) -> str:
        """Label of the source, or name of its preset, folder or file; a head's as the papers write it."""
        if label := self.label or self.source.get("label"):
            return str(HEADS[label].label if label in HEADS else label)
        preset, path = self.key.rpartition("/")[2], self.source["path"]
        name = preset if head_of(preset) else PurePath(path).name or path
        return HEADS[name].label if name in HEADS else name


@dataclass(frozen=True)
class Contents:
    """Everything that one page shows."""

    models: tuple[Model, ...]
    comparisons: tuple[Plain, ...] = ()
    """What `Comparison.to_dict` returns."""
    missing: tuple[str, ...] = ()
    """What has no result, one sentence each."""

    def __add__(self, other: Contents) -> Contents:
        """Return the contents of both on one page."""
        return Contents(self.models + other.models, self.comparisons + other.comparisons, self.missing + other.missing)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """A different label for each model: its name, and where names repeat, what tells them apart."""
        names = [model.name for model in self.models]
        apart: dict[int, str] = {}
        for name in (name for name, count in Counter(names).items() if count > 1):
            places = [place for place, other in enumerate(names) if other == name]
            apart |= dict(zip(places, _apart([self.models[place] for place in places]), strict=True))
        return tuple(f"{name} ({apart[place]})" if place in apart else name for place, name in enumerate(names))

    @cached_property
    def looks(self) -> tuple[Look, ...]:
        """The look of each model: that of its head, or a free colour; a sequential ramp if all have one head."""
        if self._ramp:
            colored = zip(self.models, self._ramp, strict=True)
            return tuple(replace(HEADS[model.head or ""], color=color, width=1.2) for model, color in colored)
        seen: Counter[str] = Counter()
        names = []
        for number, model in enumerate(self.models):
            head = model.head
            seen[head or ""] += 1
            names.append(f"model {number}" if head is None else f"{head}-{seen[head]}")
        by_name = looks(names)
        return tuple(by_name[name] for name in names)

    @property
    def _ramp(self) -> dict[str, str]:
        """Colours of several models of one head, each with its colour on a dark page; empty for other models."""
        count = len(self.models)
        if count < 2 or None in (heads := {model.head for model in self.models}) or len(heads) > 1:
            return {}
        light, dark = (map(to_hex, colormaps["plasma"](np.linspace(*ends, count))) for ends in (RAMP, RAMP_ON_DARK))
        return dict(zip(light, dark, strict=True))

    @property
    def on_dark(self) -> dict[str, str]:
        """Colours that another one replaces on a dark page."""
        return ON_DARK | self._ramp

    @property
    def title(self) -> str:
        """The models."""
        *first, last = self.labels
        if len(first) >= MOST_NAMES:
            return f"{len(self.labels)} models"
        return f"{', '.join(first)} and {last}" if first else last

    @property
    def subject(self) -> str:
        """The texts, with the shapes of their matrices."""
        texts: dict[str, None] = {}
        for model in self.models:
            corpus, (T, M) = model.source.get("corpus"), model.shape
            texts[f"{f'{corpus} ({model.split}): ' if corpus else ''}{T:,} contexts × {M:,} tokens"] = None
        return "; ".join(texts) if len(texts) <= MOST_NAMES else f"{len(texts)} texts"

    def label_of(self, source: Plain) -> str:
        """Return the label of the model that a comparison names; of one that is not on the page, its folder's name."""
        if source.get("label") in self.labels:
            return str(source["label"])

        def identity(source: Plain) -> list[Any]:  # its folder may have moved
            return [PurePath(source["path"]).name, *(source.get(key) for key in ("kind", "head", "corpus", "split"))]

        pairs = zip(self.labels, self.models, strict=True)
        labels = [label for label, model in pairs if identity(model.source) == identity(source)]
        return labels[0] if len(labels) == 1 else PurePath(source["path"]).name


def _apart(models: Sequence[Model]) -> Sequence[str]:
    """Return what differs between models of one name: split, a folder above, else their numbers."""
    places = [PurePath(model.key or model.source["path"]).parts[:-1] for model in models]
    for parts in ([model.split for model in models], *zip(*(place[::-1] for place in places), strict=False)):
        if len(set(parts)) == len(parts):
            return parts
    return [str(number) for number in range(1, len(models) + 1)]
