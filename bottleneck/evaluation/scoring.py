"""The perplexity of a source: plain, by dynamic evaluation, or with a cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Unpack, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.full_precision import full_precision
from ..core.options import MeasurementOptions
from ..core.progress import Progress, reporting
from ..core.tensor_file import digest
from ..errors import ConfigurationError, Parameter, SourceError
from ..language_models import ModelOnText, RunModel
from ..language_models.checkpoint import corpus_of
from ..language_models.text import Ids
from ..sources import Source
from ..sources.measurement import measurement, opened
from ..training.evaluate import How, Perplexity
from .cache import WINDOWS, Cache, cache_evaluate, tune_cache
from .dynamic import FILE, Dynamic, dynamic_evaluate, gradient_statistics, published_dynamic

SETTINGS = {"static": (), "dynamic": tuple(field.name for field in fields(Dynamic)), "cache": ("window",)}
"""Names of the settings of each way to evaluate."""
ROWS = 1024
"""Contexts of a model that are scored at once."""


def _check_settings(how: Any, settings: Any, **_: Any) -> None:
    """Refuse an unknown way to evaluate, and settings that it does not take."""
    if how not in get_args(How):
        raise ConfigurationError(f"how must be one of {', '.join(get_args(How))}, not {how!r}")
    if unknown := sorted(dict(settings or {}).keys() - {*SETTINGS[how]}):
        names = ", ".join(SETTINGS[how]) or "no settings"
        raise ConfigurationError(Parameter(unknown[0]), f" does not apply to {how} evaluation, which takes {names}")


@measurement(opens=opened, check=_check_settings)
def perplexity(
    source: Source,
    *,
    how: How = "static",
    settings: Mapping[str, Any] | None = None,
    **options: Unpack[MeasurementOptions],
) -> Perplexity:
    """Score the token that follows each context of a source.

    A run reads its split as one sequence, a Hugging Face model in the windows that `rank` measures.

    Args:
        source: as for `rank`; the tokens that follow its contexts must be known.
        how: ``"static"``, or for a run also ``"dynamic"`` (`dynamic_evaluate`) or ``"cache"`` (`cache_evaluate`).
        settings: values that replace the published ones: fields of `Dynamic`, or ``window`` for the cache.
        options: how the source is opened, and where to report, see `MeasurementOptions`.

    Raises:
        SourceError: when the source does not say which tokens follow its contexts.
        ConfigurationError: for a setting that does not apply.
        BottleneckError: for a source that cannot be read.
    """
    progress = reporting(options.get("progress", False))
    if how == "static":
        source = source.scored()
        scores = _static(source, progress)
    elif not isinstance(source, ModelOnText) or not isinstance(source.model, RunModel):
        raise ConfigurationError(f"{how} evaluation takes a run, and {source.description['path']} is not one")
    elif not source.reading.carries:
        raise SourceError(
            f"{how} evaluation scores one stream of tokens, and {source.description['path']} reads several texts, or "
            "lines that answer others: evaluate it without"
        )
    elif source.contexts < len(source.reading.ids) - 1:
        raise ConfigurationError(f"{how} evaluation takes a whole split: leave out ", Parameter("contexts"))
    else:
        evaluate = _dynamic if how == "dynamic" else _cached
        scores = evaluate(source.model, source.reading.ids, dict(settings or {}), progress)
    targets, text = source.targets, source.text
    count = None if text is None or targets is None else text.bytes_of(targets >= 0)
    return replace(scores, source=source.description, bytes=count)


def _static(source: Source, progress: Progress) -> Perplexity:
    """Score every target of a source by its row; `SourceError` without targets, or for one of probability 0."""
    targets = source.targets
    if targets is None or not (known := targets >= 0).any():
        raise SourceError(
            f"{source.description['path']} does not say which token came after each context, or has no column for one, "
            "so it has no perplexity: give a run, a Hugging Face model, an n-gram model, a store of one of them, "
            "hidden states with targets=… in Python or token_ids in their file, or a function from ids (B, L) to the "
            "logits of each next token (B, L, M)"
        )
    total, start = 0.0, 0
    with progress.bar("evaluating", source.shape[0], "tokens") as bar:
        for all_losses in _losses(source, targets.clip(0)):
            losses = np.where(known[start : start + len(all_losses)], all_losses, 0)
            source.check_losses(losses, start)
            total += float(losses.sum(dtype=np.float64))
            start += len(losses)
            bar.advance(len(losses))
    return Perplexity(total / int(known.sum()), int(known.sum()))


@torch.no_grad()
def _losses(source: Source, targets: NDArray[np.int64]) -> Iterator[NDArray[np.floating]]:
    """Yield the negative log-likelihoods of consecutive targets; those of a model need no whole rows."""
    if not isinstance(source, ModelOnText):
        for start, log_probs in source.blocks():
            yield -log_probs[np.arange(len(log_probs)), targets[start : start + len(log_probs)]]
        return
    ranges = source.ranges(ROWS)
    for rows, hidden in zip(ranges, source.hidden(ranges), strict=True):
        next_tokens = torch.from_numpy(targets[rows.start : rows.stop]).to(hidden.device)
        with full_precision():
            losses = source.head.nll(hidden, next_tokens, reduction="none")
        yield losses.cpu().numpy()


def _dynamic(model: RunModel, ids: Ids, changes: dict[str, Any], progress: Progress) -> Perplexity:
    """Score by dynamic evaluation; the gradient statistics are those of the run's own training text.

    They stay in the run's folder, whose weights may differ from those in memory.
    """
    run, corpus = model.run, model.corpus
    trained_on = corpus if corpus.sha256 == run.config["corpus"]["sha256"] else corpus_of(run)
    statistics = gradient_statistics(
        run.model,
        trained_on.split("train"),
        file=run.path / FILE,
        identity=f"{digest(run.model.state_dict())} {trained_on.sha256}",
        progress=progress,
    )
    settings = replace(published_dynamic(run.model.config.head.name, corpus.name), **changes)
    return dynamic_evaluate(run.model, ids, statistics, settings, progress=progress)


def _cached(model: RunModel, ids: Ids, changes: dict[str, Any], progress: Progress) -> Perplexity:
    """Score with a cache, by default of the size in AWD-LSTM's code, tuned on the validation split.

    Of a text without one it is that of the run's own corpus.
    """
    network, corpus = model.run.model, model.corpus
    tuned_on = corpus if len(corpus.splits) > 1 else corpus_of(model.run)
    asked = Cache(**{"window": WINDOWS.get(corpus.name, Cache.window), **changes})
    settings = tune_cache(network, tuned_on.split("valid"), window=asked.window, progress=progress)
    scores = cache_evaluate(network, ids, settings, progress=progress)
    chosen_on = "valid" if tuned_on is corpus else f"valid of {tuned_on.name}"
    return replace(scores, settings={**asdict(settings), "chosen_on": chosen_on})
