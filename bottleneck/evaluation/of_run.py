"""Score a run by dynamic evaluation and with a cache, using its own corpus."""

from __future__ import annotations

from ..checkpoint import MODEL, Run, corpus_of
from ..corpora import Corpus
from ..errors import SourceError
from ..files import sha256_file
from ..progress import SILENT, Progress
from ..training.evaluate import Evaluation
from .cache import WINDOWS, Cache, cache_evaluate, tune_cache
from .dynamic import Dynamic, dynamic_evaluate, published_dynamic
from .statistics import FILE, gradient_statistics


def dynamic_scores(
    run: Run, corpus: Corpus, *, split: str = "test", settings: Dynamic | None = None, progress: Progress = SILENT
) -> Evaluation:
    """Score a split by dynamic evaluation; the training text's gradient statistics stay in the run's folder.

    Args:
        run: run whose model is on the device of the evaluation.
        corpus: corpus of the split; the statistics are always those of the run's own training text.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        settings: settings of the update; by default `published_dynamic` for the head and the corpus.
        progress: progress display.

    Raises:
        TrainingError: for a text that is too short, or a loss too large for a perplexity.
        SourceError: for a run that answers contexts, see `Backbone.context_lines`.
        CorpusError, RunError: if the run's own corpus is missing or has changed.
        OutputError: for a run's folder that cannot be written.
    """
    _check_stream(run, "dynamic evaluation")
    trained_on = corpus if corpus.sha256 == run.config["corpus"]["sha256"] else corpus_of(run)
    statistics = gradient_statistics(
        run.model,
        trained_on.split("train"),
        file=run.path / FILE,
        identity=f"{sha256_file(run.path / MODEL)} {trained_on.sha256}",
        progress=progress,
    )
    settings = settings or published_dynamic(run.model.config.head.name, corpus.name)
    return dynamic_evaluate(run.model, corpus.split(split), statistics, settings, progress=progress)


def cached_scores(
    run: Run, corpus: Corpus, *, split: str = "test", window: int | None = None, progress: Progress = SILENT
) -> tuple[Evaluation, Cache]:
    """Score a split with a continuous cache; return the scores and the settings, chosen on the validation split.

    Args:
        run: run whose model is on the device of the evaluation.
        corpus: corpus of both splits.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        window: number of contexts in the cache; by default that of AWD-LSTM's code for the corpus.
        progress: progress display.

    Raises:
        SourceError: for a run that answers contexts, see `Backbone.context_lines`.
        TrainingError: for a split that is too short.
    """
    _check_stream(run, "a cache")
    window = window or WINDOWS.get(corpus.name, Cache.window)
    settings = tune_cache(run.model, corpus.split("valid"), window=window, progress=progress)
    return cache_evaluate(run.model, corpus.split(split), settings, progress=progress), settings


def _check_stream(run: Run, what: str) -> None:
    if run.model.backbone.context_lines is not None:
        raise SourceError(
            f"{run.path} answers the lines before a line, and {what} scores one stream of tokens: evaluate it without"
        )
