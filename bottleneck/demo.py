"""The papers' claim on a laptop: train each output layer, measure its rank, print one table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .checkpoint import METRICS, check_hashes, corpus_of, load, read_config
from .demo_table import table
from .errors import ConfigurationError
from .evaluation import Dynamic, cached_scores, dynamic_scores
from .figures import mos_figure_1
from .files import make_folder, write_json
from .heads import Head
from .heads.plif import PLIF
from .measure import RankReport, kld, rank
from .progress import SILENT, Progress
from .sources import open_source
from .spectrum import save_spectrum
from .training import PRESETS, FitResult, Preset, RunConfig, fit, is_begun, override

CURVE_POINTS = 201
"""Number of points of a learned function that a report keeps."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is trained and measured; the defaults are those of ``make demo``."""

    family: str = "demo"
    """The family of presets that is trained."""
    seeds: int = 1
    """Runs of each preset, with the seeds from 0."""
    settings: tuple[str, ...] = ()
    """``key=value``, as ``bottleneck train --set`` takes them; neither the seed nor the head."""
    initial: Path | None = None
    """A folder of finished runs, another study's ``runs``: each starts from the one of its name and seed there."""
    contexts: int | None = None
    """Rows of the test split that ranks and divergences are of; ``None`` for all."""
    adaptive: bool = False
    """Whether seed 0 is scored by dynamic evaluation, at the cost of training, and with a cache as well."""

    def configurations(self) -> list[tuple[Preset, RunConfig]]:
        """Return every run's preset and configuration, all presets of one seed after the other.

        Raises:
            ConfigurationError: there is no such family, no seed, or a setting is wrong.
        """
        presets = [preset for preset in PRESETS.values() if preset.family == self.family]
        if not presets:
            families = ", ".join(dict.fromkeys(preset.family for preset in PRESETS.values()))
            raise ConfigurationError(f"there is no family of presets {self.family!r}; known families are {families}")
        if self.seeds < 1 or any(setting.startswith("seed=") for setting in self.settings):
            raise ConfigurationError("a demo's seeds count from 0: give their number, at least 1, with --seeds")
        found = [
            (preset, override(preset.config, [*self.settings, f"seed={seed}", *self._start(preset, seed)]))
            for seed in range(self.seeds)
            for preset in presets
        ]
        if any(config.model.head.name != preset.head for preset, config in found):
            raise ConfigurationError("a demo's heads are those of its presets: choose them with --family")
        return found

    def _start(self, preset: Preset, seed: int) -> list[str]:
        if self.initial is not None:
            return [f"initial={self.initial.resolve() / file_name(preset, seed)}"]
        if preset.initial:
            raise ConfigurationError(
                f"{preset.name} starts from a run of {preset.initial}: give --initial DIR/runs of the demo in DIR that "
                "trained it"
            )
        return []


def file_name(preset: Preset, seed: int) -> str:
    """Return what the run and the report of a preset are called, the seed in it where that is not 0."""
    name = preset.variant or preset.head
    return f"{name}-{seed}" if seed else name


def run(out: Path, study: Study | None = None, *, device: str = "cpu", progress: Progress = SILENT) -> str:
    """Train and measure every preset of a family; return the table as text.

    Writes ``runs/NAME``, ``reports/NAME.json``, the spectrum as ``reports/NAME.npz``, and ``cdf.png``, ``cdf.pdf``,
    ``cdf.csv`` under ``out``; a NAME ends with its seed where that is not 0, and the figure shows seed 0. Finished runs
    are kept, so an interrupted demo continues, more seeds add to those there are, and a finished one is only measured
    again.

    Args:
        out: a folder, made when it is not there.
        study: what to train and measure; by default what ``make demo`` does.
        device: where models train and are evaluated.
        progress: where to report.

    Raises:
        ConfigurationError: there is no such family, no seed, or a setting is wrong.
        BottleneckError: what `fit` and `rank` raise.
    """
    study = study or Study()
    configurations = study.configurations()
    for preset, config in configurations:  # all of them before the first hour
        if config.initial is not None and not is_begun(out / "runs" / file_name(preset, config.seed)):
            read_config(Path(config.initial))
            check_hashes(Path(config.initial))
    make_folder(out / "reports")
    rows, spectra = [], {}
    for preset, config in configurations:
        file, name = file_name(preset, config.seed), preset.variant or preset.head
        progress.line(f"{preset.name}, seed {config.seed}: {preset.summary}")
        done = fit(config, out / "runs" / file, device=device, progress=progress)
        row = measure(name, config.seed, done, study, device=device, progress=progress)
        row.save(out / "reports" / file)
        rows.append(row.values)
        if not config.seed:
            spectra[name] = row.report.spectrum
    mos_figure_1.save(spectra, out / "cdf.png", out / "cdf.pdf")
    return table(rows)


class Row(NamedTuple):
    """One trained and measured output layer."""

    values: dict[str, Any]
    """What is kept of it, ready for JSON: the rank report, and what training and the other measurements add to it."""
    report: RankReport

    def save(self, stem: Path) -> None:
        """Write the values as ``stem.json`` and the spectrum as ``stem.npz``."""
        write_json(stem.with_name(f"{stem.name}.json"), self.values)
        save_spectrum(stem.with_name(f"{stem.name}.npz"), self.report.spectrum, self.report.source)


def measure(
    name: str, seed: int, done: FitResult, study: Study, *, device: str = "cpu", progress: Progress = SILENT
) -> Row:
    """Return the rank, the divergence and, of seed 0 where the study asks for them, the adaptive scores of a run.

    Args:
        name: of the preset in its family.
        seed: of the run.
        done: what `fit` returned.
        study: how many contexts, and whether adaptive scores are wanted.
        device: where the model is evaluated.
        progress: where to report.
    """
    source = open_source(done.path, device=device, contexts=study.contexts)
    report = rank(source, progress=progress)
    values = {
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
    return Row(values, report)


def _adaptive_scores(done: FitResult, device: str, progress: Progress) -> dict[str, Any]:
    """Return the test perplexities that need the text before them, and the settings they are made with."""
    trained = load(done.path)
    trained.model.to(device)
    corpus, rates = corpus_of(trained), Dynamic()
    cached, settings = cached_scores(trained, corpus, progress=progress)
    dynamic = dynamic_scores(trained, corpus, settings=rates, progress=progress)
    used = {"dynamic": asdict(rates), "cache": asdict(settings)}
    return {"adaptive": {"dynamic": dynamic.perplexity, "cache": cached.perplexity, "settings": used}}


def _history(run: Path) -> list[dict[str, Any]]:
    """Return epoch, step and validation perplexity of each validation of the training."""
    rows = map(json.loads, (run / METRICS).read_text(encoding="utf-8").splitlines())
    kept = ("epoch", "step", "valid_perplexity")
    return [{key: row[key] for key in kept} for row in rows if "valid_perplexity" in row]


def _function(head: Head) -> dict[str, Any]:
    """Return the curve of a head's PLIF at few of its knots, shifted to f(0) = 0: a softmax sees no constant."""
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
