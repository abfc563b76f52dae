"""Read what the commands saved: rank reports as JSON, their spectra, divergences, scores and comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..errors import ConfigurationError
from ..figures.results import Saved, read, read_file
from ..measure.loading import with_spectrum
from ..measure.report import RankReport
from .contents import Contents, Model

RANKS = ("demo", "rank")
"""Kinds of files that hold a rank report."""
OTHERS = ("kld", "perplexity", "dialog", "comparison")
"""Kinds of files that add to a model."""
NAMES = {
    "perplexity": "{split} perplexity",
    "kld": "{split} pairwise KL",
    "kld.drawn": "{split} pairwise KL",
    "parameters": "parameters",
}
"""Names of the numbers that the page shows beside a rank, by metric; an exact divergence goes before a drawn one."""
WRITTEN_BY = "'bottleneck rank --json FILE.json --save-spectrum FILE.npz' writes it"


def read_saved(paths: Iterable[Path], labels: Mapping[Path, str] = MappingProxyType({})) -> Contents:
    """Return the contents of saved results; nothing is computed again.

    A model is a rank report, with the singular values of the ``.npz`` file of the same name. Saved divergences, scores
    and comparisons are added to the models that they are of. Of several seeds of one model the first is shown.

    Args:
        paths: JSON files, ``.npz`` files beside their JSON files, and folders of such files.
        labels: names of the models in some of the paths, in place of their own.

    Raises:
        ConfigurationError: a file is missing, cut short, or not a result, or without a rank.
        MatrixError: a spectrum is damaged.
    """
    given = {_json(path): label for path, label in labels.items()}
    saved: list[Saved] = []
    missing: list[str] = []
    names: dict[Path, str] = {}
    for path in dict.fromkeys(map(_json, paths)):
        if path.is_dir():
            results = read(path)
            found = [each for each in results.saved if each.kind != "rank" or each.epoch is None]
            missing += [f"{unknown} does not say what kind of result it is" for unknown in results.unknown]
        else:
            found = _file(path)
        saved += found
        if path in given:
            names |= dict.fromkeys((each.path for each in found), given[path])
    groups: dict[Any, list[Saved]] = {}  # the seeds of each model
    for each in saved:
        if each.kind in RANKS:
            groups.setdefault((each.path.parent, each.key, each.split), []).append(each)
    if not groups:
        raise ConfigurationError(f"{', '.join(map(str, paths))}: without a rank report; {WRITTEN_BY}")
    others = [each for each in saved if each.kind in OTHERS[:-1]]
    counts = Counter(names.get(first.path, "") for first, *_ in groups.values())
    models = []
    for seeds in groups.values():
        first = min(seeds, key=lambda each: each.seed)
        model = _model(first, others)
        if label := names.get(first.path, ""):
            model = replace(model, label=label if counts[label] == 1 else f"{label}/{model.name}")
        models.append(model)
        if len(seeds) > 1:
            missing.append(f"{first.key}: seed {first.seed} is shown, of {len(seeds)} seeds")
        if models[-1].report.decomposition is None:
            npz = first.path.with_suffix(".npz").name
            missing.append(f"no singular values of {first.path}: they are not in {npz} beside it; {WRITTEN_BY}")
    comparisons = tuple(each.content for each in saved if each.kind == "comparison")
    return Contents(tuple(models), comparisons, tuple(dict.fromkeys(missing)))


def _json(path: Path) -> Path:
    """Return the JSON file beside a saved spectrum; other paths as they are."""
    return path.with_suffix(".json") if path.suffix == ".npz" else path


def _file(path: Path) -> list[Saved]:
    if not path.is_file():
        raise ConfigurationError(f"the file {path} does not exist; {WRITTEN_BY}")
    saved = read_file(path, path.parent)
    other = [each.kind for each in saved if each.kind not in (*RANKS, *OTHERS)]
    if other or not saved:
        what = f"a result of the kind {other[0]!r}" if other else "not a result"
        raise ConfigurationError(f"{path} is {what}, and a report is made of ranks; {WRITTEN_BY}")
    return [each if each.epoch is None else replace(each, model=path.stem) for each in saved]


def _model(saved: Saved, others: Iterable[Saved]) -> Model:
    report = with_spectrum(RankReport.from_dict(saved.report), saved.path)
    key = f"{saved.path.resolve().parent.name}/{saved.model}"
    numbers, drawn = _numbers(saved, others)
    return Model(report, f"{saved.path}, written by version {saved.report['version']}", key, numbers, drawn)


def _measured(saved: Saved) -> dict[str, Any]:
    """Return what was measured, by whatever label."""
    return {key: value for key, value in saved.source.items() if key != "label"}


def _numbers(saved: Saved, others: Iterable[Saved]) -> tuple[dict[str, float], Any]:
    """Return a model's other numbers by name, and its drawn divergences: of its name and folder, or of its source."""

    def is_of(other: Saved) -> bool:
        vocabs = {each.report.get("vocab") for each in (other, saved)} - {None}
        is_same = _measured(other) == _measured(saved) and len(vocabs) < 2  # with the same tokens
        return is_same or (other.path.parent, other.key) == (saved.path.parent, saved.key)

    same = [saved, *(other for other in others if is_of(other))]
    found = [number for each in same for number in each.numbers() if number["epoch"] is None]
    numbers: dict[str, float] = {}
    for metric, name in NAMES.items():
        for number in found:
            if number["metric"] == metric:
                numbers.setdefault(name.format(split=number["split"]), number["value"])
    drawn = [each.content for each in same if each.content.get("histogram") and each.split == saved.split]
    return numbers, drawn[-1] if drawn else None
