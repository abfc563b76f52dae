"""The work of ``bottleneck demo``: train small models with each output layer, and measure them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from softmax_bottleneck.core.devices import threads
from softmax_bottleneck.core.files import make_folder, write_json
from softmax_bottleneck.core.interruption import note_if_interrupted
from softmax_bottleneck.core.json_file import read_json_lines
from softmax_bottleneck.core.progress import SILENT, Progress
from softmax_bottleneck.errors import ConfigurationError, Parameter, RunError
from softmax_bottleneck.evaluation import Dynamic, perplexity
from softmax_bottleneck.heads import Head
from softmax_bottleneck.heads.plif import PLIF
from softmax_bottleneck.language_models.checkpoint import COMPLETE, METRICS, check_hashes, load, read_config
from softmax_bottleneck.measure import kld, rank
from softmax_bottleneck.results.plotting.spectra import save_spectra
from softmax_bottleneck.results.plotting.style import FORMATS
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.spectrum import load_spectra, write_spectra
from softmax_bottleneck.training import FitResult, Preset, RunConfig, fit, is_begun, override
from softmax_bottleneck.training.presets import family

from .paths import Figure, Output, holds_result, holds_spectra, is_drawn

CURVE_POINTS = 201
"""Number of points of a learned function that a report keeps."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Settings of a demo; the defaults are those of ``make demo``."""

    family: str = "demo"
    """Family of the presets to train."""
    models: tuple[str, ...] = ()
    """Names of those to train, as the table has them, in the family's order; empty for all."""
    seeds: int = 1
    """Number of runs of each preset, with seeds from 0."""
    settings: tuple[str, ...] = ()
    """Settings ``key=value`` for each run, as in ``bottleneck train --set``, except the seed and the head."""
    initial: Path | None = None
    """Folder ``runs`` of another demo; each run starts from the run of the same name and seed there."""
    contexts: int | None = None
    """Number of rows of the test split to measure; ``None`` for all."""
    adaptive: bool = False
    """Whether seed 0 is also scored by dynamic evaluation, which takes as long as training, and with a cache."""
    max_memory: int | str | None = None
    """Memory of each decomposition, as for `rank`."""

    def configurations(self) -> list[tuple[Preset, RunConfig]]:
        """Return the preset and configuration of each run, sorted by seed."""
        presets = family(self.family)
        if unknown := sorted(set(self.models) - set(presets)):
            raise ConfigurationError(f"{self.family} has no model {unknown[0]!r}; its models are {', '.join(presets)}")
        if self.seeds < 1 or any(setting.startswith("seed=") for setting in self.settings):
            raise ConfigurationError(
                "seeds run from 0: give their number, at least 1, with ",
                Parameter("seeds"),
                ", and leave out ",
                Parameter("settings", flag="set"),
                " seed",
            )
        runs = [
            (preset, override(preset.config, [*self.settings, f"seed={seed}", *self._start(preset, seed)]))
            for seed in range(self.seeds)
            for name, preset in presets.items()
            if name in (self.models or presets)
        ]
        if any(config.model.head.name != preset.head for preset, config in runs):
            raise ConfigurationError("a demo's heads are those of its presets: choose them with ", Parameter("family"))
        return runs

    def _start(self, preset: Preset, seed: int) -> list[str]:
        if self.initial is not None:
            return [f"initial={self.initial.resolve() / file_name(preset, seed)}"]
        if preset.initial:
            raise ConfigurationError(
                f"{preset.name} starts from a run of {preset.initial}: give ",
                Parameter("initial"),
                " DIR/runs of the demo in DIR that trained it",
            )
        return []


def file_name(preset: Preset, seed: int) -> str:
    """Return the name of a preset's run and report, which ends with the seed unless it is 0."""
    return f"{preset.model}-{seed}" if seed else preset.model


def run(out: Path, study: Study | None = None, *, device: str = "cpu", progress: Progress = SILENT) -> list[Path]:
    """Train and measure every preset of a family; return the files of the reports.

    Writes ``runs/NAME``, ``reports/NAME.json``, the spectrum as ``reports/NAME.npz``, and ``cdf.png``, ``cdf.pdf``,
    ``cdf.svg``, ``cdf.csv`` under ``out``; a NAME ends with its seed unless it is 0, and the figure shows seed 0.
    Finished runs are kept: an interrupted demo continues, and a finished one is only measured again.

    Raises:
        ConfigurationError: for an unknown family or model, fewer than one seed, or a wrong setting.
        BottleneckError: as for `fit` and `rank`.
    """
    study = study or Study()
    configurations = study.configurations()
    figures = [out / f"cdf.{suffix}" for suffix in FORMATS]
    for figure in figures:
        Figure("a figure", is_own=is_drawn).keep_others(figure)
    for preset, config in configurations:  # check all before the first training
        stem = out / "reports" / file_name(preset, config.seed)
        Output("a report of the demo", is_own=holds_result).keep_others(stem.with_name(f"{stem.name}.json"))
        Output("its spectrum", is_own=holds_spectra).keep_others(stem.with_name(f"{stem.name}.npz"))
        if config.initial is not None and not is_begun(out / "runs" / file_name(preset, config.seed)):
            read_config(Path(config.initial))
            check_hashes(Path(config.initial))
    reports = make_folder(out / "reports")
    files, curves = [], []
    with note_if_interrupted(lambda: _saved_models(out, configurations)):
        for preset, config in configurations:
            name = file_name(preset, config.seed)
            progress.line(f"{preset.name}, seed {config.seed}: {preset.summary}; {preset.cost}")
            # Two threads take as long as one for the steps of the demo, half a GFLOP each.
            with threads(1 if study.family == "demo" else torch.get_num_threads()):
                done = fit(config, out / "runs" / name, device=device, progress=progress)
                write_report(reports / name, preset.model, config.seed, done, study, device=device, progress=progress)
            files.append(reports / f"{name}.json")
            if not config.seed:
                (saved,) = load_spectra(reports / f"{name}.npz")
                curves.append(saved.spectrum.curves(preset.model, saved.limits))
    save_spectra(pd.concat(curves), *figures, part="raw")
    return files


def _saved_models(out: Path, configurations: Sequence[tuple[Preset, RunConfig]]) -> str:
    """Return what an interrupted demo leaves."""
    names = [file_name(preset, config.seed) for preset, config in configurations]
    trained = sum((out / "runs" / name / COMPLETE).exists() for name in names)
    return f"{trained} of {len(names)} models are trained and kept in {out / 'runs'}, and the same command continues"


def write_report(
    stem: Path, name: str, seed: int, done: FitResult, study: Study, *, device: str = "cpu", progress: Progress = SILENT
) -> None:
    """Write the report of a run and of its preset's ``name`` to ``stem.json``, and its spectrum to ``stem.npz``.

    It holds the rank, the divergence and, for seed 0 of an adaptive study, the adaptive scores.
    """
    source = open_source(done.path, device=device, contexts=study.contexts)
    report = rank(source, max_memory=study.max_memory, progress=progress)
    values = {
        "kind": "demo",
        "name": name,
        "seed": seed,
        "parameters": done.parameters,
        "steps": done.steps,
        "averaged_steps": done.averaged_steps,
        "valid_perplexity": done.valid_perplexity,
        "test_perplexity": done.test.perplexity,
        **(_adaptive_scores(done, device, progress) if study.adaptive and seed == 0 else {}),
        "train_seconds": done.seconds,
        "machine": dict(done.machine),
        "history": _history(done.path),
        **_function(load(done.path).model.head),
        "kld": kld(source, progress=progress).kld,
        "report": report.to_dict(),
    }
    write_json(stem.with_name(f"{stem.name}.json"), values)
    write_spectra(stem.with_name(f"{stem.name}.npz"), [report.saved_spectrum])


def _adaptive_scores(done: FitResult, device: str, progress: Progress) -> dict[str, Any]:
    """Return the test perplexities of dynamic evaluation and of a cache, with their settings."""
    rates = asdict(Dynamic())  # the same for every head
    dynamic = perplexity(done.path, how="dynamic", settings=rates, device=device, progress=progress)
    cached = perplexity(done.path, how="cache", device=device, progress=progress)
    used = {"dynamic": dict(dynamic.settings), "cache": dict(cached.settings)}
    return {"adaptive": {"dynamic": dynamic.perplexity, "cache": cached.perplexity, "settings": used}}


def _history(run: Path) -> list[dict[str, Any]]:
    """Return epoch, step and validation perplexity of each validation."""
    rows = read_json_lines(run / METRICS, dict[str, Any], error=RunError, remedy="train the run again")
    keys = ("epoch", "step", "valid_perplexity")
    return [{key: row[key] for key in keys} for row in rows if "valid_perplexity" in row]


def _function(head: Head) -> dict[str, Any]:
    """Return some points of a head's piecewise linear function (PLIF), shifted to f(0) = 0."""
    function = getattr(head, "function", None)
    if not isinstance(function, PLIF):
        return {}
    curve = function.function()
    places = torch.linspace(0, len(curve.knots) - 1, CURVE_POINTS).round().long()
    values = curve.values - curve.values[len(curve.knots) // 2]
    return {
        "function": {
            "pieces": function.knots,
            "slopes": asdict(function.slope_statistics()),
            "knots": curve.knots[places].tolist(),
            "values": values[places].tolist(),
        }
    }
