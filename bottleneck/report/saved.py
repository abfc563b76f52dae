"""Read what the commands saved: rank reports as JSON, their spectra, divergences, scores and comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from ..figures.results import CHECKPOINT, KINDS, Saved, read, read_file
from ..measure.loading import with_spectrum
from ..measure.report import RankReport
from .contents import Contents, Model

RANKS = ("report", "rank")
"""Kinds of files that hold a rank report."""
WRITTEN_BY = "'bottleneck rank --json FILE.json --save-spectrum FILE.npz' writes it"


def read_saved(paths: Sequence[Path]) -> Contents:
    """Return the contents of saved results; nothing is computed again.

    A model is a rank report, with the singular values of the ``.npz`` file of the same name. Saved divergences, scores
    and comparisons are added to the models that they are of. Of several seeds of one model the first is shown.

    Args:
        paths: JSON files, ``.npz`` files beside their JSON files, and folders of such files.

    Raises:
        ConfigurationError: a file is missing, cut short, or not a result, or without a rank.
        MatrixError: a spectrum is damaged.
    """
    saved: list[Saved] = []
    missing: list[str] = []
    for path in dict.fromkeys(path.with_suffix(".json") if path.suffix == ".npz" else path for path in paths):
        if path.is_dir():
            results = read(path)
            saved += results.saved
            missing += [f"{unknown} is not a result of a known kind" for unknown in results.unknown]
        else:
            saved += _file(path)
    groups: dict[Any, list[Saved]] = {}  # the seeds of each model
    for each in saved:
        if each.kind in RANKS:
            groups.setdefault((each.path.parent, each.key, each.split), []).append(each)
    if not groups:
        raise ConfigurationError(f"{', '.join(map(str, paths))}: without a rank report; {WRITTEN_BY}")
    others = [each for each in saved if each.kind in ("divergence", "evaluation")]
    models = []
    for seeds in groups.values():
        first = min(seeds, key=lambda each: each.seed)
        models.append(_model(first, others))
        if len(seeds) > 1:
            missing.append(f"{first.key}: seed {first.seed} is shown, of {len(seeds)} seeds")
        if models[-1].report.decomposition is None:
            missing.append(f"{first.path}: no singular values beside it; {WRITTEN_BY}")
    comparisons = tuple(each.content for each in saved if each.kind == "comparison")
    return Contents(tuple(models), comparisons, tuple(missing))


def _file(path: Path) -> list[Saved]:
    if not path.is_file():
        raise ConfigurationError(f"the file {path} does not exist; {WRITTEN_BY}")
    saved = [
        replace(each, kind="rank", key=each.path.stem) if each.kind == CHECKPOINT else each
        for each in read_file(path, path.parent)
    ]
    kinds = [each.kind for each in saved]
    other = [kind for kind in kinds if kind not in (*RANKS, "comparison", "divergence", "evaluation")]
    if other or not kinds:
        what = f"the result of '{KINDS[other[0]][1]}'" if other else "not a result"
        raise ConfigurationError(f"{path} is {what}, and a report is made of ranks; {WRITTEN_BY}")
    return saved


def _model(saved: Saved, others: Iterable[Saved]) -> Model:
    report = with_spectrum(RankReport.from_dict(saved.rank_report), saved.path)
    key = f"{saved.path.resolve().parent.name}/{saved.key.rpartition('/')[2]}"
    numbers, drawn = _numbers(saved, others)
    return Model(report, f"{saved.path}, written by version {saved.rank_report['version']}", key, numbers, drawn)


def _numbers(saved: Saved, others: Iterable[Saved]) -> tuple[dict[str, float], Any]:
    """Return a model's other numbers by name, and its drawn divergences: of its name and folder, or of its source."""
    content, drawn = saved.content, None
    numbers: dict[str, float] = {}
    if saved.kind == "report":
        names = {"valid_perplexity": "valid perplexity", "test_perplexity": "test perplexity"}
        names |= {"kld": f"{saved.split} pairwise KL", "parameters": "parameters"}
        numbers = {name: content[key] for key, name in names.items() if key in content}
    for other in others:
        value, beside = other.content, (other.path.parent, other.key) == (saved.path.parent, saved.key)
        if not beside and value["source"] != saved.rank_report["source"]:
            continue
        if other.kind == "evaluation" and value["how"] == "static":
            numbers.setdefault(f"{other.split} perplexity", value["perplexity"])
        if other.kind == "divergence":
            if value["pairs"] == "all" or f"{other.split} pairwise KL" not in numbers:
                numbers[f"{other.split} pairwise KL"] = value["kld"]
            if value.get("histogram") and other.split == saved.split:
                drawn = value
    return numbers, drawn
