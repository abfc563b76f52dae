"""What a page is about: models with their measurements, and comparisons of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Any

from ..measure import verdict
from ..results.plotting import HEADS, Look, head_of, looks
from ..results.saved import SavedRank
from ..spectrum import Spectrum

Plain = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Model:
    """One measured model."""

    report: SavedRank
    origin: str
    """Where the measurement comes from, as people read it."""
    spectrum: Spectrum | None = None
    key: str = ""
    """``FAMILY/NAME`` of the preset FAMILY-NAME, if the results lie in such a folder."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Other measured numbers, by name: ``"test perplexity"``, ``"test pairwise KL"``, ``"parameters"``, …."""
    drawn: Plain | None = None
    """What `PairwiseKLD.to_dict` returns for drawn pairs, with their histogram."""

    @property
    def shape(self) -> tuple[int, int]:
        """(T, M)."""
        return self.report.contexts, self.report.vocab

    @property
    def source(self) -> Plain:
        """What was measured: path, kind, head, corpus, split."""
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
        if label := self.source.get("label"):
            return str(HEADS[label].label if label in HEADS else label)
        preset, path = self.key.rpartition("/")[2], str(self.source["path"])
        name = preset if head_of(preset) else PurePath(path).name or path
        return HEADS[name].label if name in HEADS else name

    @property
    def verdict(self) -> str:
        """What the rank says of the output layer, as one sentence."""
        report = self.report
        known = {"bound": report.bound["raw"], "embedding_size": report.embedding_size}
        of_a_model = self.source.get("kind") != "matrix"
        return verdict(report.rank, shape=self.shape, distinct=report.eps.distinct, of_a_model=of_a_model, **known)


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
        """The look of each model: that of its head, or a free colour."""
        seen: Counter[str] = Counter()
        names = []
        for number, model in enumerate(self.models):
            head = model.head
            seen[head or ""] += 1
            names.append(f"model {number}" if head is None else f"{head}-{seen[head]}")
        by_name = looks(names)
        return tuple(by_name[name] for name in names)

    def label_of(self, source: Plain) -> str:
        """Return the label of the model that a comparison names; of one that is not on the page, its folder's name."""
        labels = [label for label, model in zip(self.labels, self.models, strict=True) if _same(model.source, source)]
        return labels[0] if len(labels) == 1 else PurePath(str(source["path"])).name


def _same(source: Plain, other: Plain) -> bool:
    """Return whether two descriptions are of one source, whose folder may have moved."""
    keys = ("kind", "head", "corpus", "split")
    same = all(source.get(key) == other.get(key) for key in keys)
    return same and PurePath(str(source["path"])).name == PurePath(str(other["path"])).name


def _apart(models: Sequence[Model]) -> list[str]:
    """Return what differs between models of one name: split, a folder above, else their numbers."""
    places = [[model.split, *_folders(model)] for model in models]
    for depth in range(max(map(len, places))):
        parts = [place[depth] if depth < len(place) else "" for place in places]
        if all(parts) and len(set(parts)) == len(parts):
            return parts
    return [str(number) for number in range(1, len(models) + 1)]


def _folders(model: Model) -> list[str]:
    """Return the folders above a model, the nearest first."""
    path = PurePath(model.key or str(model.source["path"]))
    return [*path.parts[:-1]][::-1]
