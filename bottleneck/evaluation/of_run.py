"""Score a run by dynamic evaluation and with a cache, using its own corpus."""

from __future__ import annotations

from ..checkpoint import MODEL, Run, corpus_of
from ..corpora import Corpus
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
        run: its model on the device where it is to be scored.
        corpus: of the split; the statistics are always of the text that the run was trained on.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        settings: rates; by default `published_dynamic`'s for the head and the corpus.
        progress: where to report.

    Raises:
        TrainingError: a text is too short, or the loss grows beyond any perplexity.
        CorpusError, RunError: the run's own corpus is not there, or has changed.
        OutputError: the run's folder cannot be written.
    """
    own = corpus if corpus.sha256 == run.config["corpus"]["sha256"] else corpus_of(run)
    statistics = gradient_statistics(
        run.model,
        own.split("train"),
        file=run.path / FILE,
        identity=f"{sha256_file(run.path / MODEL)} {own.sha256}",
        progress=progress,
    )
    settings = settings or published_dynamic(run.model.config.head.name, corpus.name)
    return dynamic_evaluate(run.model, corpus.split(split), statistics, settings, progress=progress)


def cached_scores(
    run: Run, corpus: Corpus, *, split: str = "test", window: int | None = None, progress: Progress = SILENT
) -> tuple[Evaluation, Cache]:
    """Score a split with a continuous cache; return the scores and the settings, chosen on the validation split.

    Args:
        run: its model on the device where it is to be scored.
        corpus: of both splits.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        window: contexts the cache holds; by default that of AWD-LSTM's code for the corpus.
        progress: where to report.

    Raises:
        TrainingError: a split is too short.
    """
    window = window or WINDOWS.get(corpus.name, Cache.window)
    settings = tune_cache(run.model, corpus.split("valid"), window=window, progress=progress)
    return cache_evaluate(run.model, corpus.split(split), settings, progress=progress), settings
