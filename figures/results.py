"""Saved results: what the commands wrote as JSON and ``.npz`` under one folder, by what was measured.

A file is known by its content, and its place says of which model it is: ``FAMILY/NAME.json`` is of the preset
FAMILY-NAME; ``NAME-1.json`` is of the seed 1, ``NAME.epoch-3.json`` of a checkpoint kept after three epochs, and what
else follows a dot, as in ``NAME.valid.json``, is free.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from softmax_bottleneck._version import __version__
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.spectrum import Spectrum, load_spectrum

Content = Mapping[str, Any]

KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "report": (("name", "test_perplexity", "report"), "bottleneck demo"),
    "cells": (("alpha", "cells"), "bottleneck synthetic --json FILE"),
    "concentrations": (("quantiles", "curves"), "python -m softmax_bottleneck.synthetic.concentrations FILE"),
    "comparison": (("first_better", "second_better"), "bottleneck compare --json FILE"),
    "divergence": (("pairs", "kld"), "bottleneck kld --json FILE"),
    "rank": (("rank", "rank_centered", "rank_by_rule"), "bottleneck rank --json FILE"),
    "evaluation": (("how", "bits", "perplexity"), "bottleneck eval --json FILE"),
    "bench": (("machine", "cases"), "bottleneck bench --json FILE"),
    "profile": (("machine", "passes"), "bottleneck synthetic --profile --json FILE"),
}
"""Kind of a JSON file → the keys it is known by, and the command that writes it."""
CHECKPOINT = "checkpoint"
"""Kind of a rank of weights that were kept during training."""
SPECTRUM = "bottleneck rank --save-spectrum FILE"


@dataclass(frozen=True)
class Saved:
    """One file of results."""

    path: Path
    kind: str
    key: str
    """``FAMILY/NAME``, without the seed."""
    content: Content

    @property
    def seed(self) -> int:
        """Return the seed; 0 where the file does not say."""
        return int(self.content.get("seed", 0))

    @property
    def epoch(self) -> int | None:
        """Return the epoch of a checkpoint; ``None`` for a finished run."""
        return _epoch(self.path)

    @property
    def split(self) -> str:
        """Return the split it is of."""
        report = self.content.get("report", self.content)
        return str(report.get("source", {}).get("split", "test"))


@dataclass(frozen=True)
class Results:
    """All results of one folder; `read` makes it."""

    folder: Path
    saved: tuple[Saved, ...]
    unknown: tuple[Path, ...] = ()
    """JSON files of no kind above."""

    def of(self, kind: str, key: str | None = None) -> list[Saved]:
        """Return the files of one kind, or those of one model."""
        return [each for each in self.saved if each.kind == kind and key in (None, each.key)]

    def reports(self, family: str) -> list[Content]:
        """Return the demo's reports of one family of presets."""
        return [each.content for each in self.of("report") if each.key.rpartition("/")[0] == family]

    def families(self) -> list[str]:
        """Return the families of presets that there are reports of."""
        return list(dict.fromkeys(each.key.rpartition("/")[0] for each in self.of("report")))

    @cached_property
    def spectra(self) -> Mapping[str, Spectrum]:
        """Return the saved spectra, by key; of several seeds that of seed 0."""
        others = {saved.path.with_suffix(".npz") for saved in self.of("report") if saved.seed}
        files = sorted(set(self.folder.rglob("*.npz")) - others)
        return {_key(self.folder, file): load_spectrum(file)[0] for file in files}

    def numbers(self, key: str, metric: str, *, split: str = "test", how: str = "") -> list[float]:
        """Return one measured number of a model for each seed there is.

        Args:
            key: ``FAMILY/NAME``.
            metric: ``"perplexity"``, ``"bits per character"``, ``"pairwise KL"`` or ``"parameters"``.
            split: that the number is of.
            how: ``"dynamic"`` or ``"cache"``; or a variation that has files of its own, ``FAMILY-HOW/NAME``.
        """
        if how not in ("", "dynamic", "cache"):
            family, _, name = key.rpartition("/")
            return self.numbers(f"{family}-{how.lower()}/{name}", metric, split=split)
        if metric == "bits per character":
            return [math.log2(value) for value in self.numbers(key, "perplexity", split=split, how=how)]
        reports = [each.content for each in self.of("report", key)]
        if metric == "parameters":
            return [report["parameters"] for report in reports[:1]]
        if metric == "pairwise KL":
            kept = [
                each.content for kind in ("report", "divergence") for each in self.of(kind, key) if each.split == split
            ]
            return [content["kld"] for content in kept]
        if metric != "perplexity":
            return []
        if how:
            adaptive = [report["adaptive"][how] for report in reports if "adaptive" in report and split == "test"]
        else:
            adaptive = [report[f"{split}_perplexity"] for report in reports if f"{split}_perplexity" in report]
        return adaptive + [
            each.content["perplexity"]
            for each in self.of("evaluation", key)
            if each.content["how"] == (how or "static") and each.split == split
        ]

    def ranks(self, key: str, *, split: str = "test", how: str = "", contexts: int | None = None) -> list[Content]:
        """Return the measured ranks of a model, one a seed, as the reports have them.

        Args:
            key: ``FAMILY/NAME``.
            split: that the matrix is of.
            how: a variation, see `numbers`.
            contexts: number of rows that the matrix must have; ``None`` for any.
        """
        if how:
            family, _, name = key.rpartition("/")
            key = f"{family}-{how.lower()}/{name}"
        reports = [each.content["report"] for each in self.of("report", key) if each.split == split]
        reports += [each.content for each in self.of("rank", key) if each.split == split]
        return [report["rank"] for report in reports if contexts in (None, report["contexts"])]


def read(folder: Path) -> Results:
    """Return the results under a folder.

    Raises:
        ConfigurationError: there is no such folder, it holds no results, a file is cut short, was written by a newer
            version, or two files disagree about one measurement.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder}; name one of results with --results")
    saved, unknown = [], []
    for path in sorted(folder.rglob("*.json")):
        content = _content(path)
        kind = next((kind for kind, (keys, _) in KINDS.items() if all(key in content for key in keys)), None)
        if kind is None:
            unknown.append(path)
        else:
            kind = CHECKPOINT if kind == "rank" and _epoch(path) is not None else kind
            saved.append(Saved(path, kind, _key(folder, path, content.get("seed", 0)), content))
    if not saved:
        commands = ", ".join(f"'{command}'" for _, command in KINDS.values())
        raise ConfigurationError(f"{folder} holds no results; {commands} write them")
    _refuse_contradictions(saved)
    return Results(folder, tuple(sorted(saved, key=_order)), tuple(unknown))


def _content(path: Path) -> Content:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} is cut short or no JSON ({error}); write it again, or remove it") from error
    if not isinstance(content, dict):
        return {}
    report = content.get("report", content)
    version = str(report.get("version", __version__) if isinstance(report, dict) else __version__)
    if _numbers(version) > _numbers(__version__):
        raise ConfigurationError(
            f"{path} was written by version {version}, and this is {__version__}; update softmax-bottleneck, or remove "
            "the file"
        )
    return content


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _epoch(path: Path) -> int | None:
    found = re.search(r"\.epoch-(\d+)\.", path.name)
    return int(found[1]) if found else None


def _key(folder: Path, path: Path, seed: int = 0) -> str:
    name = path.name.partition(".")[0]
    return path.relative_to(folder).with_name(name.removesuffix(f"-{seed}") if seed else name).as_posix()


def _order(saved: Saved) -> tuple[int, str, int]:
    """Return where a file stands: by kind, then as `demo_table.read` has them."""
    from softmax_bottleneck.heads import REGISTRY

    head = saved.content.get("report", {}).get("source", {}).get("head") if saved.kind == "report" else None
    place = [*REGISTRY].index(head) if head in REGISTRY else len(REGISTRY)
    return [*KINDS, CHECKPOINT].index(saved.kind), f"{saved.path.parent}/{place:02d}/{saved.key}", saved.seed


def _refuse_contradictions(saved: Sequence[Saved]) -> None:
    """Refuse two files about the same measurement that say different things."""
    identity: dict[str, Callable[[Saved], Any]] = {
        "report": lambda each: (each.key, each.seed),
        "divergence": lambda each: (each.key, each.split),
        "rank": lambda each: (each.key, each.split),
        "evaluation": lambda each: (each.key, each.split, each.content["how"]),
        CHECKPOINT: lambda each: (each.key, each.split, each.epoch),
    }
    seen: dict[Any, Saved] = {}
    for each in saved:
        if each.kind in identity:
            _agree(seen, (each.kind, identity[each.kind](each)), each, each.content)
        if each.kind == "cells":
            for cell in each.content["cells"]:
                place = tuple(cell[name] for name in ("model", "alpha", "vocab", "dim", "seed", "contexts"))
                _agree(seen, (each.kind, place), each, cell)


def _agree(seen: dict[Any, Any], place: Any, saved: Saved, content: Content) -> None:
    other, before = seen.setdefault(place, (saved, content))
    if other is not saved and before != content:
        raise ConfigurationError(
            f"{other.path} and {saved.path} are of the same measurement and differ; remove the one that is wrong"
        )
