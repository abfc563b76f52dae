"""The scores of a dialog model: perplexity, and BLEU of its responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from ..core.progress import SILENT, Progress
from ..errors import Parameter, SourceError
from ..language_models import RunOnText
from ..results.base import Result
from ..sources import Source
from ..training.evaluate import Perplexity
from .bleu import Bleu, bleu


@final
@dataclass(frozen=True)
class DialogScores(Result):
    """Perplexity of a run, and BLEU of its responses."""

    perplexity: Perplexity
    model: Mapping[str, Any]
    """``head``, ``seed``, ``parameters`` and ``embedding_size`` of the run."""
    bleu: Bleu

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {**self.perplexity.to_dict(), **self.model, "bleu": self.bleu.to_dict()}

    def rows(self) -> list[tuple[str, str]]:
        """Return the scores as pairs of label and text."""
        return [*self.perplexity.rows(), *self.bleu.rows()]


def score_dialog(
    source: Source, scores: Perplexity, *, contexts: int | None = None, progress: Progress = SILENT
) -> DialogScores:
    """Add BLEU to the perplexity of a run; see `bleu`.

    Args:
        source: opened run.
        scores: its perplexity.
        contexts: number of contexts to answer, from the first; by default all.
        progress: progress display.

    Raises:
        SourceError: for a source that is not a run, or a run that reads a stream.
        ConfigurationError: if NLTK is not installed.
    """
    if not isinstance(source, RunOnText):
        raise SourceError(Parameter("bleu"), f" is for runs, and {source.description['path']} is not one")
    run, head = source.run, source.head
    model = {
        "head": run.model.config.head.name,
        "seed": run.config["seed"],
        "parameters": run.model.parameter_count(),
        "embedding_size": head.embedding_size,
    }
    scored = bleu(run.model, source.corpus, split=source.split, contexts=contexts, progress=progress)
    return DialogScores(scores, model, scored)
