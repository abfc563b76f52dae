"""Which tokens a model's output layer can never predict."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from torch import Tensor

from ..core.options import Opening, takes
from ..core.progress import Progress, reporting
from ..core.version import __version__
from ..errors import SourceError
from ..heads.log_linear import LogLinear
from ..heads.pointwise import Pointwise
from ..hugging_face import HuggingFaceOnText
from ..language_models import ModelOnText
from ..results.base import Result
from ..sources import MatrixSource, Source, open_source
from ..theory import ArgmaxReport, unargmaxable


@dataclass(frozen=True, eq=False, repr=False)
class ArgmaxableTokens(Result):
    """Which tokens of a source's output layer are the argmax for some context vector, and which for none."""

    source: Mapping[str, Any]
    """What was measured."""
    report: ArgmaxReport
    """The report, with a context vector or a certificate for each token."""
    seconds: float
    """Wall-clock time."""
    padding: range = range(0)
    """Ids of the rows of W that stand for no token of the tokenizer; empty if there are none or it is unknown."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; context vectors and weights are left out."""
        return {
            "source": dict(self.source),
            **self.report.to_dict(),
            **({"padding": self._padding()} if self.padding else {}),
            "seconds": self.seconds,
            "version": __version__,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the result as pairs of label and text."""
        if not self.padding:
            return self.report.rows()
        padding = self._padding()
        text = (
            f"ids {padding['first']:,} to {padding['last']:,} are rows of the output layer beyond the tokenizer's "
            f"tokens; {len(padding['unargmaxable']):,} of these {len(self.padding):,} are never the argmax"
        )
        return [*self.report.rows(), ("padding", text)]

    def _padding(self) -> dict[str, Any]:
        """Return the ids of the padding, and those of them that are never the argmax, or undecided."""
        decided = {"unargmaxable": self.report.unargmaxable, "unknown": self.report.unknown}
        padding = {name: ids[ids >= self.padding.start].tolist() for name, ids in decided.items()}
        return {"first": self.padding.start, "last": self.padding.stop - 1, **padding}


@takes(Opening)
def argmaxable(
    source: Any,
    *,
    limit: float | None = 60.0,
    workers: int = 1,
    progress: Progress | bool = False,
    **options: Unpack[Opening],
) -> ArgmaxableTokens:
    """Decide for each token of a source's output layer whether any context vector makes it the argmax.

    Args:
        source: a model as for `rank`, whose head is a single softmax, log-linear or with an increasing function
            applied to each logit; or W itself, (M, d), with ``kind="matrix"``.
        limit: seconds for each token's linear program; a token that exceeds it is reported as unknown.
        workers: number of processes; see `theory.unargmaxable`.
        progress: where to report; ``True`` means standard error.
        options: how the source is opened, see `Opening`.

    Raises:
        SourceError: for a mixture, whose argmax no single set of logits decides, or a matrix of log-probabilities.
        MatrixError: for numbers that are not finite.
    """
    started = time.monotonic()
    opened = open_source(source, **options)
    W, b = output_embeddings(opened)
    report = unargmaxable(W, b, seconds=limit, workers=workers, progress=reporting(progress))
    tokens = opened.vocabularies["tokenizer"] if isinstance(opened, HuggingFaceOnText) else None
    padding = range(0) if tokens is None else range(tokens, report.vocab)
    return ArgmaxableTokens(opened.description, report, round(time.monotonic() - started, 3), padding)


def output_embeddings(source: Source) -> tuple[Tensor, Tensor | None]:
    """Return the output embeddings W, (M, d), and the output bias b, (M,), of a source; see `argmaxable`."""
    what = source.description["path"]
    if isinstance(source, ModelOnText):
        head = source.head
        if not isinstance(head, LogLinear | Pointwise):
            raise SourceError(
                f"{what} has a {source.description['head']} head: the argmax of a mixture is not decided by one set of "
                "logits; give a model with a single softmax"
            )
        return head.weight.detach().cpu(), None if head.bias is None else head.bias.detach().cpu()
    if isinstance(source, MatrixSource) and source.description["kind"] == "matrix":
        return torch.cat([torch.from_numpy(block.log_probs.copy()) for block in source.blocks()]), None
    raise SourceError(
        f"{what} is no output layer: give a run, a Hugging Face model, or a matrix file of W with --kind matrix"
    )
