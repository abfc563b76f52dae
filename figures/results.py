"""Saved results of the commands: the JSON and ``.npz`` files under one folder.

The content of a file decides its kind, and its path the model: ``FAMILY/NAME.json`` belongs to the preset FAMILY-NAME,
``NAME-1.json`` to seed 1, and ``NAME.epoch-3.json`` to a checkpoint after three epochs. Other text after a dot, as in
``NAME.valid.json``, is free.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from softmax_bottleneck.core.json_file import check_schema, explain_read_errors, read_json
from softmax_bottleneck.errors import ConfigurationError, Parameter
from softmax_bottleneck.results.base import by_numbers, short_names
from softmax_bottleneck.spectrum import Spectrum, load_spectrum

from .schemas import SCHEMAS

Content = Mapping[str, Any]

KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "report": (("name", "test_perplexity", "report"), "bottleneck demo"),
    "cells": (("alpha", "cells"), "bottleneck synthetic --json FILE"),
    "concentrations": (("quantiles", "curves"), "python -m softmax_bottleneck.synthetic.concentrations FILE"),
    "comparison": (("first_better", "second_better"), "bottleneck compare --json FILE"),
    "divergence": (("pairs", "kld"), "bottleneck kld --json FILE"),
    "rank": (("rank", "rank_centered", "rank_by_rule"), "bottleneck rank --json FILE"),
    "gradient": (("kept", "kept_energy", "bands"), "bottleneck gradient --json FILE"),
    "argmaxable": (("argmaxable", "unargmaxable"), "bottleneck argmaxable --json FILE"),
    "evaluation": (("how", "bits", "perplexity"), "bottleneck eval --json FILE"),
    "spam": (("cases", "texts", "length"), "python notebooks/studies/spam.py FILE"),
    "bench": (("machine", "cases"), "bottleneck bench --json FILE"),
    "transformer": (("regime", "bits_per_byte"), "python notebooks/studies/transformer.py --out DIR"),
    "frozen": (("rate", "course", "added_parameters"), "python notebooks/studies/frozen_body.py --out DIR"),
    "profile": (("machine", "passes"), "python notebooks/studies/dirichlet_pass.py FILE"),
}
"""For each kind of JSON file, the keys that identify it and the command that writes it."""
CHECKPOINT = "checkpoint"
"""Kind of the rank of a checkpoint kept during training."""
MODELS = ("report", "rank", "divergence", "evaluation", CHECKPOINT)
"""Kinds of files about one model."""
REMEDY = "write it again, or remove it"
SPECTRUM = "bottleneck rank --save-spectrum FILE"


@dataclass(frozen=True)
class Saved:
    """One result in a file."""

    path: Path
    kind: str
    key: str
    """``FAMILY/NAME``, without the seed."""
    content: Content

    @property
    def family(self) -> str:
        """Return the family of presets."""
        return self.key.rpartition("/")[0]

    @property
    def model(self) -> str:
        """Return the name of the model in its family."""
        return self.key.rpartition("/")[2]

    @property
    def seed(self) -> int:
        """Return the seed; 0 if the file does not state it."""
        seed = self.content.get("seed")
        return seed if isinstance(seed, int) else 0

    @property
    def epoch(self) -> int | None:
        """Return the epoch of a checkpoint; ``None`` for a finished run."""
        return _epoch(self.path)

    @property
    def split(self) -> str:
        """Return the split that was measured."""
        return str(self.rank_report["source"].get("split") or "test")  # a matrix has none

    @property
    def rank_report(self) -> Content:
        """Return the rank report in a report of the demo; other contents as they are."""
        content: Content = self.content["report"] if self.kind == "report" else self.content
        return content


@dataclass(frozen=True)
class SavedResults:
    """All results of one folder, from `read`."""

    folder: Path
    saved: tuple[Saved, ...]
    unknown: tuple[Path, ...] = ()
    """JSON files of no known kind."""

    def of(self, kind: str, key: str | None = None) -> list[Saved]:
        """Return the files of one kind, or those of one model."""
        return [each for each in self.saved if each.kind == kind and key in (None, each.key)]

    def reports(self, family: str) -> list[Content]:
        """Return the demo's reports of one family of presets."""
        return [each.content for each in self.of("report") if each.family == family]

    @cached_property
    def spectra(self) -> Mapping[str, Spectrum]:
        """Return the saved spectra of seed 0, by key."""
        others = {saved.path.with_suffix(".npz") for saved in self.of("report") if saved.seed}
        files = sorted(set(self.folder.rglob("*.npz")) - others)
        return {_key(self.folder, file): load_spectrum(file).spectrum for file in files}

    def numbers(self, key: str, metric: str, *, split: str = "test", how: str = "") -> list[float]:
        """Return one measured number of a model, ``FAMILY/NAME``, for each measured seed.

        ``how`` is ``"dynamic"``, ``"cache"``, or a variation, whose files are ``FAMILY-HOW/NAME``.
        """
        if how not in ("", "dynamic", "cache"):
            return self.numbers(_variation(key, how), metric, split=split)
        if metric == "bits per character":
            return [math.log2(value) for value in self.numbers(key, "perplexity", split=split, how=how)]
        reports = [each.content for each in self.of("report", key)]
        scores = [each.content for each in self.of("evaluation", key) if each.split == split]
        if metric == "parameters":
            return [report["parameters"] for report in reports[:1]]
        if metric == "pairwise KL":
            saved = [*self.of("report", key), *self.of("divergence", key)]
            found = [each.content for each in saved if each.split == split]
            return [one["kld"] for one in found if one.get("pairs", "all") == "all"] or [one["kld"] for one in found]
        if metric.startswith("BLEU"):
            bleu = [score["bleu"]["scores"] for score in scores if "bleu" in score]
            return [each[metric]["mean"] for each in bleu if metric in each]
        if metric != "perplexity":
            return []
        if how:
            adaptive = [report["adaptive"][how] for report in reports if "adaptive" in report and split == "test"]
        else:
            adaptive = [report[f"{split}_perplexity"] for report in reports if f"{split}_perplexity" in report]
        return adaptive + [score["perplexity"] for score in scores if score["how"] == (how or "static")]

    def models(self, family: str) -> list[Content]:
        """Return one report or evaluation of each model of a family of presets; it says the model's embedding size."""
        saved = (each for each in (*self.of("report"), *self.of("evaluation")) if each.family == family)
        by_name: dict[str, Content] = {}
        for each in saved:
            if "embedding_size" in each.rank_report:
                by_name.setdefault(each.model, {**each.rank_report, "name": each.model})
        return [*by_name.values()]

    def ranks(
        self, key: str, *, split: str = "test", how: str = "", contexts: int | None = None, part: str = "rank"
    ) -> list[Content]:
        """Return the measured ranks of a model, one for each seed, of matrices with ``contexts`` rows or of any.

        ``part`` is ``"rank"`` or ``"rank_centered"``, and ``how`` a variation, see `numbers`.
        """
        key = _variation(key, how) if how else key
        saved = [*self.of("report", key), *self.of("rank", key)]
        reports = [each.rank_report for each in saved if each.split == split]
        return [report[part] for report in reports if contexts in (None, report["contexts"])]


def _variation(key: str, how: str) -> str:
    """Return the key ``FAMILY-HOW/NAME``."""
    family, _, name = key.rpartition("/")
    return f"{family}-{how.lower()}/{name}"


def read(folder: Path) -> SavedResults:
    """Return the results under a folder.

    Raises:
        ConfigurationError: there is no such folder, it holds no results, a file is cut short, or two files disagree
            about one measurement.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"the folder {folder} does not exist; name one of results with ", Parameter("results"))
    found = (path for path in sorted(folder.rglob("*.json")) if not path.name.startswith("."))
    files = {path: read_file(path, folder) for path in found}
    saved = [each for parts in files.values() for each in parts]
    unknown = [path for path, parts in files.items() if not parts]
    if not saved:
        commands = ", ".join(f"'{command}'" for _, command in KINDS.values())
        raise ConfigurationError(f"{folder} holds no results; {commands} write them")
    _refuse_contradictions(saved)
    return SavedResults(folder, tuple(sorted(saved, key=_order)), tuple(unknown))


def read_file(path: Path, folder: Path) -> list[Saved]:
    """Return the results in one file under a folder, none for JSON of no kind above; it raises what `read` does.

    The results of several sources, as ``rank A B --json FILE`` writes them, have the keys ``FILE/LABEL``.
    """
    content = read_json(path, error=ConfigurationError, remedy=REMEDY, finite=True)
    content = content if isinstance(content, dict) else {}
    several = content.get("results")
    if isinstance(several, list) and several and all(isinstance(each, dict) for each in several):
        key = _key(folder, path)
        names = short_names([_name(each) or str(number) for number, each in enumerate(several, start=1)])
        saved = [_saved(path, f"{key}/{name}", each) for name, each in zip(names, several, strict=True)]
    else:
        saved = [_saved(path, _key(folder, path, content.get("seed", 0)), content)]
    return [each for each in saved if each is not None]


def _name(content: Content) -> str:
    """Return the label or the path of what was measured; empty if neither is known."""
    source = content.get("source")
    return str(source.get("label") or source.get("path") or "") if isinstance(source, dict) else ""


def _saved(path: Path, key: str, content: Content) -> Saved | None:
    kind = next((kind for kind, (keys, _) in KINDS.items() if all(key in content for key in keys)), None)
    if kind is None:
        return None
    if schema := SCHEMAS.get(kind):
        explain_read_errors(path, ConfigurationError, REMEDY, lambda: check_schema(content, schema))
    kind = CHECKPOINT if kind == "rank" and _epoch(path) is not None else kind
    return Saved(path, kind, key, content)


def _epoch(path: Path) -> int | None:
    match = re.search(r"\.epoch-(\d+)\.", path.name)
    return int(match[1]) if match else None


def _key(folder: Path, path: Path, seed: int = 0) -> str:
    name = path.name.partition(".")[0] or path.name
    short = name.removesuffix(f"-{seed}") if seed else name
    return path.relative_to(folder).with_name(short or name).as_posix()


def _order(saved: Saved) -> tuple[int, str, int, int]:
    """Return the sort key of a file: its kind, then the order of `demo_table.read`, then the epoch."""
    from softmax_bottleneck.heads import REGISTRY

    head = saved.rank_report["source"].get("head") if saved.kind in MODELS else None
    place = [*REGISTRY].index(head) if head in REGISTRY else len(REGISTRY)
    where = f"{saved.path.parent}/{place:02d}/{by_numbers(saved.key)}"
    return [*KINDS, CHECKPOINT].index(saved.kind), where, saved.seed, saved.epoch or 0


def _refuse_contradictions(saved: Sequence[Saved]) -> None:
    """Refuse two files of the same measurement with different numbers."""
    seen: dict[Any, tuple[Saved, Content]] = {}
    for each in saved:
        content = each.content
        measurements: list[tuple[Any, Content]] = []
        if each.kind == "cells":
            names = ("model", "alpha", "vocab", "dim", "seed", "contexts")
            measurements = [([cell[name] for name in names], cell) for cell in content["cells"]]
        elif each.kind in MODELS:
            what = (each.kind, each.key, each.seed, each.split, each.epoch, content.get("pairs"), content.get("how"))
            measurements = [(what, content)]
        for place, numbers in measurements:
            other, before = seen.setdefault(tuple(place), (each, numbers))
            if other is not each and before != numbers:
                raise ConfigurationError(
                    f"{other.path} and {each.path} are of the same measurement and differ; remove the one that is wrong"
                )
