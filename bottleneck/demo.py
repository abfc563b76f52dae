"""The papers' claim on a laptop: train each output layer, measure its rank, print one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .checkpoint import check_hashes, corpus_of, load, read_config
from .demo_table import table
from .errors import ConfigurationError
from .evaluation import Dynamic, cached_scores, dynamic_scores
from .figures import mos_figure_1
from .files import make_folder, write_json
from .logprobs import kld, open_source, rank
from .progress import SILENT, Progress
from .spectrum import RankReport
from .training import PRESETS, FitResult, Preset, RunConfig, fit, is_begun, override


@dataclass(frozen=True)
class Row:
    """One trained and measured output layer."""

    name: str
    seed: int
    run: FitResult
    report: RankReport
    kld: float
    """Expected pairwise KL divergence on the test split, nats."""
    adaptive: Mapping[str, Any]
    """Test perplexities that need the text before them, ``dynamic`` and ``cache``, and the ``settings`` of both."""

    def to_dict(self) -> dict[str, Any]:
        """Return the rank report with what training, the divergence and the adaptive scores add to it."""
        return {
            "name": self.name,
            "seed": self.seed,
            "parameters": self.run.parameters,
            "steps": self.run.steps,
            "averaged_steps": self.run.averaged_steps,
            "valid_perplexity": self.run.valid_perplexity,
            "test_perplexity": self.run.test.perplexity,
            **({"adaptive": dict(self.adaptive)} if self.adaptive else {}),
            "train_seconds": self.run.seconds,
            "machine": dict(self.run.machine),
            "kld": self.kld,
            "report": self.report.to_dict(),
        }


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is trained and measured; the defaults are those of ``make demo``."""

    family: str = "demo"
    """Of presets."""
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

    Writes ``runs/NAME``, ``reports/NAME.json``, and ``cdf.png``, ``cdf.pdf``, ``cdf.csv`` under ``out``; a NAME ends
    with its seed where that is not 0, and the figure shows seed 0. Finished runs are kept, so an interrupted demo
    continues, more seeds add to those there are, and a finished one is only measured again.

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
    rows = []
    for preset, config in configurations:
        file = file_name(preset, config.seed)
        progress.line(f"{preset.name}, seed {config.seed}: {preset.summary}")
        done = fit(config, out / "runs" / file, device=device, progress=progress)
        rows.append(measure(preset.variant or preset.head, config.seed, done, study, device, progress))
        write_json(out / "reports" / f"{file}.json", rows[-1].to_dict())
    first = {row.name: row.report.spectrum for row in rows if not row.seed}
    mos_figure_1.save(first, out / "cdf.png", out / "cdf.pdf")
    return table([row.to_dict() for row in rows])


def measure(name: str, seed: int, done: FitResult, study: Study, device: str, progress: Progress) -> Row:
    """Return the rank, the divergence and, of seed 0 where the study asks for them, the adaptive scores of a run."""
    source = open_source(done.path, device=device, contexts=study.contexts)
    report = rank(source, progress=progress)
    divergence = kld(source, progress=progress).kld
    adaptive: dict[str, Any] = {}
    if study.adaptive and seed == 0:
        trained = load(done.path)
        trained.model.to(device)
        corpus = corpus_of(trained)
        cached, settings = cached_scores(trained, corpus, progress=progress)
        rates = Dynamic()
        adaptive["dynamic"] = dynamic_scores(trained, corpus, settings=rates, progress=progress).perplexity
        adaptive |= {"cache": cached.perplexity, "settings": {"dynamic": asdict(rates), "cache": asdict(settings)}}
    return Row(name, seed, done, report, divergence, adaptive)
