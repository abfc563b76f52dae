"""Saved results of the commands under one folder, and all their numbers as one table.

A file says of what kind it is, and perhaps of which model and seed; otherwise its place does: ``FAMILY/NAME.json``
belongs to the preset FAMILY-NAME, ``NAME-1.json`` to seed 1, and ``NAME.epoch-3.json`` to a checkpoint after three
epochs. Other text after a dot, as in ``NAME.valid.json``, is free.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from softmax_bottleneck.core.json_file import explain_read_errors, read_json
from softmax_bottleneck.corpora import catalogue
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.heads import REGISTRY
from softmax_bottleneck.language_models.checkpoint import CONFIG, VOCABULARY
from softmax_bottleneck.results.base import by_numbers, short_names
from softmax_bottleneck.results.published import SPLITS, expectation, measurements
from softmax_bottleneck.spectrum import OtherArchiveError, SavedSpectrum, Spectrum, load_spectra
from softmax_bottleneck.training.presets import PRESETS

from .schemas import checked

Content = Mapping[str, Any]

ABOUT = ("kind", "family", "model", "head", "seed", "split", "epoch", "contexts", "metric")
"""Columns of the table of all numbers that say what was measured; the others are value, low, high and source."""
METRICS = {"pairwise KL": "kld", "bits per character": "bits"}
"""Keys in JSON of the metrics that the papers' tables name otherwise."""
ADAPTIVE = ("dynamic", "cache")
"""Ways of evaluation that adapt to the preceding text."""
REMEDY = "write it again, or remove it"
SPECTRUM = "bottleneck rank --save-spectrum FILE"


@dataclass(frozen=True)
class Saved:
    """One result in a file."""

    path: Path
    kind: str
    family: str
    """Family of presets."""
    model: str
    """Name of the model in its family."""
    content: Content

    @property
    def key(self) -> str:
        """Return ``FAMILY/NAME``."""
        return _joined(self.family, self.model)

    @property
    def seed(self) -> int:
        """Return the seed; 0 if the file does not state it."""
        return int(self.content.get("seed", 0))

    @property
    def epoch(self) -> int | None:
        """Return the epoch of a checkpoint; ``None`` for a finished run."""
        match = re.search(r"\.epoch-(\d+)\.", self.path.name)
        return int(match[1]) if match else None

    @property
    def report(self) -> Content:
        """Return the rank report in a report of the demo; other contents as they are."""
        content: Content = self.content["report"] if self.kind == "demo" else self.content
        return content

    @property
    def source(self) -> Content:
        """Return what was measured; empty for a result of several models."""
        source: Content = self.report.get("source", {})
        return source

    @property
    def split(self) -> str:
        """Return the split that was measured."""
        return str(self.source.get("split") or "test")  # a matrix has none

    def numbers(self) -> Iterator[dict[str, Any]]:
        """Yield all numbers of one model as rows of the table, by their key in JSON, where dots nest.

        The number of a list is its length.
        """
        if not self.source:
            return
        about = {"kind": self.kind, "family": self.family, "model": self.model, "head": self.source.get("head")}
        about |= {"seed": self.seed, "split": self.split, "epoch": self.epoch, "source": self.key}
        about["contexts"] = self.report.get("contexts")
        validations = self.content.get("history", [])
        yield from (about | number for number in _numbers({**self.report, **self.content, "report": None}))
        yield from (about | number for row in validations for number in _numbers(row) if number["metric"] != "epoch")


def _numbers(content: Content) -> Iterator[dict[str, Any]]:
    """Yield the numbers of a result, with what their keys and other values say of them."""
    more = {"epoch": content["epoch"]} if "valid_perplexity" in content and "epoch" in content else {}
    for metric, values in _flat(content):
        split, _, rest = metric.partition("_")
        values |= {**more, "metric": metric} if split not in SPLITS[1:] else {**more, "metric": rest, "split": split}
        if metric == "perplexity" and content.get("how", "static") != "static":
            values["metric"] = f"adaptive.{content['how']}"
        if metric == "kld" and content.get("pairs", "all") != "all":
            values["metric"] = "kld.drawn"
        yield values
        if values["metric"] == "perplexity" and "bits" not in content:
            yield {**values, "metric": "bits", "value": math.log2(values["value"])}


def _flat(content: Content, before: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in content.items():
        value = len(value) if isinstance(value, list) else value
        ends = value if isinstance(value, Mapping) else {"value": value}
        middle = ends.get("value", ends.get("mean"))
        if isinstance(middle, int | float) and not isinstance(middle, bool):
            yield before + key, {"value": middle, "low": ends.get("low"), "high": ends.get("high")}
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")


@dataclass(frozen=True)
class SavedResults:
    """All results of one folder, from `read`."""

    folder: Path
    saved: tuple[Saved, ...]
    unknown: tuple[Path, ...] = ()
    """JSON files that do not say what they are."""

    def of(self, kind: str, key: str | None = None) -> list[Saved]:
        """Return the files of one kind, or those of one model."""
        return [each for each in self.saved if each.kind == kind and key in (None, each.key)]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Return every number, one a row, measured and published (of the kind ``"published"``); see ``ABOUT``."""
        measured = (number for each in self.saved for number in each.numbers())
        data = pd.DataFrame([*measured, *measurements()], columns=[*ABOUT, "value", "low", "high", "source"])
        return data.drop_duplicates(ignore_index=True)

    @cached_property
    def _by_model(self) -> dict[Any, pd.DataFrame]:
        finished = self.frame[self.frame["epoch"].isna() & (self.frame["kind"] != "published")]
        return dict([*finished.groupby(["family", "model"])])

    def numbers(
        self, key: str, metric: str, *, split: str = "test", how: str = "", contexts: int | None = None
    ) -> pd.DataFrame:
        """Return the rows of one measured number of a model, ``FAMILY/NAME``: one for each measured seed.

        ``how`` is one of ``ADAPTIVE``, or a variation, whose files are ``FAMILY-HOW/NAME``; ``contexts`` is the number
        of rows of the matrix.
        """
        family, _, model = key.rpartition("/")
        place = (f"{family}-{how.lower()}" if how and how not in ADAPTIVE else family), model
        metric = f"adaptive.{how}" if how in ADAPTIVE else METRICS.get(metric, metric)
        rows = self._by_model.get(place, self.frame[:0])
        rows = rows[rows["split"] == split]
        rows = rows if contexts is None else rows[rows["contexts"] == contexts]
        found = rows[rows["metric"].str.removeprefix("bleu.scores.") == metric]
        return found if len(found) or metric != "kld" else rows[rows["metric"] == "kld.drawn"]

    @cached_property
    def spectra(self) -> Mapping[str, Spectrum]:
        """Return the saved spectra of seed 0, by key."""
        others = {saved.path.with_suffix(".npz") for saved in self.of("demo") if saved.seed}
        files = sorted(set(self.folder.rglob("*.npz")) - others)
        keys = {file: _joined(*_place(self.folder, file)) for file in files}
        found: dict[str, Spectrum] = {}
        for file in files:
            with suppress(OtherArchiveError):  # the archive is the user's
                found |= {key: each.spectrum for key, each in saved_spectra(keys[file], file)}
        return found


def read(folder: Path, files: Sequence[Path] | None = None) -> SavedResults:
    """Return the results under a folder, or those in some of its files.

    Raises:
        ConfigurationError: there is no such folder, it holds no results, a file is cut short or cannot be of its
            place, or two files disagree about one measurement.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"the folder {folder} does not exist; name one of results")
    paths = (path for path in sorted(folder.rglob("[!.]*.json")) if path.name not in (CONFIG, VOCABULARY))  # of runs
    parts = {path: read_file(path, folder) for path in (paths if files is None else files)}
    saved = [each for several in parts.values() for each in several]
    if not saved:
        raise ConfigurationError(
            f"{folder} holds no results; 'bottleneck demo' and '--json FILE' of commands write them, as in 'bottleneck "
            "rank RUN --json FILE.json'"
        )
    _refuse_other_corpora(saved)
    _refuse_contradictions(saved)
    return SavedResults(folder, tuple(sorted(saved, key=_order)), tuple(path for path in parts if not parts[path]))


def read_file(path: Path, folder: Path) -> list[Saved]:
    """Return the results in one file under a folder, none for JSON without a kind; it raises what `read` does.

    The results of several sources, as ``rank A B --json FILE`` writes them, have the keys ``FILE/LABEL``.
    """
    content = read_json(path, error=ConfigurationError, remedy=REMEDY, finite=True)
    if not isinstance(content, dict) or not isinstance(kind := content.get("kind"), str):
        return []
    explain_read_errors(path, ConfigurationError, REMEDY, lambda: checked(content))
    family, name = _place(folder, path)
    if kind != "results":
        model = name.removesuffix(f"-{seed}") if (seed := content.get("seed")) else name
        return [Saved(path, kind, family, str(content.get("name", model)), content)]
    several = content["results"]
    sources = [each.get("source", {}) for each in several]
    names = [str(source.get("label") or source.get("path") or place) for place, source in enumerate(sources, start=1)]
    pairs = zip(short_names(names), several, strict=True)
    return [Saved(path, str(each.get("kind")), _joined(family, name), label, each) for label, each in pairs]


def saved_spectra(key: str, file: Path) -> list[tuple[str, SavedSpectrum]]:
    """Return the spectra in a file with its key, several with the keys of their results."""
    several = load_spectra(file)
    names = [str(source.get("label") or source.get("path")) for _, source, _ in several]
    keys = [key] if len(several) == 1 else [f"{key}/{name}" for name in short_names(names)]
    return [*zip(keys, several, strict=True)]


def _place(folder: Path, path: Path) -> tuple[str, str]:
    """Return the family and the model of a file by its place."""
    family = path.relative_to(folder).parent.as_posix()
    return "" if family == "." else family, path.name.partition(".")[0] or path.name


def _joined(family: str, model: str) -> str:
    return f"{family}/{model}" if family else model


def _order(saved: Saved) -> tuple[str, str, int, int]:
    """Return the sort key of a file: its kind, its folder, the registry's place of its head, name, seed and epoch."""
    heads = [*REGISTRY]
    place = heads.index(head) if (head := saved.source.get("head")) in heads else len(heads)
    return saved.kind, f"{saved.path.parent}/{place:02d}/{by_numbers(saved.key)}", saved.seed, saved.epoch or 0


def _refuse_other_corpora(saved: Sequence[Saved]) -> None:
    """Refuse what cannot be of the preset that its place names, beside whose published numbers it would stand."""
    sizes = {info.name: info.vocabulary_size for info in catalogue()}
    for each in saved:
        name, vocab = each.key.replace("/", "-"), each.report.get("vocab")
        is_published = name in PRESETS and not expectation(each.key).startswith("no ")
        size = sizes.get(PRESETS[name].config.corpus) if is_published else None
        if size and vocab and vocab != size:
            raise ConfigurationError(
                f"{each.path} has {vocab:,} tokens, and the corpus of the preset {name}, which its place names, has "
                f"{size:,}: put it elsewhere"
            )


def _refuse_contradictions(saved: Sequence[Saved]) -> None:
    """Refuse two files of the same measurement with different numbers."""
    seen: dict[Any, tuple[Saved, Content]] = {}
    for each in saved:
        fits = each.content["cells"] if each.kind == "synthetic" else ()
        names = ("model", "alpha", "vocab", "dim", "seed", "contexts")
        measured = [(tuple(fit[name] for name in names), fit) for fit in fits]
        measured += [(tuple(map(number.get, ABOUT)), number) for number in each.numbers()]
        for name, number in measured:
            other, before = seen.setdefault(name, (each, number))
            if other is not each and before != number:
                raise ConfigurationError(
                    f"{other.path} and {each.path} are of the same measurement and differ; remove the one that is wrong"
                )
