"""Dynamic evaluation: the model is trained on the text while it is scored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core import tensor_file
from ..core.files import write_bytes
from ..core.full_precision import evaluating, full_precision
from ..core.progress import SILENT, Progress
from ..errors import ConfigurationError, OutputError, Parameter, TrainingError
from ..language_models.model import LanguageModel
from ..results.published import PublishedTable, tables
from ..training.epochs import bptt_segments, columns, lengths
from ..training.evaluate import Perplexity, check_scorable

FILE = "gradient_statistics.safetensors"
BATCH_SIZE = 100
"""Parallel texts in Krause et al. 2018, and in Yang et al. 2018, table 9."""
BPTT = 5
"""Tokens of each text in a batch of the gradient statistics in Krause et al. 2018."""
MOST_NATS = 700
"""Largest mean loss whose perplexity is finite in float64."""


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """Settings of dynamic evaluation; the defaults are those of Yang et al. 2018 for Penn Treebank (table 9)."""

    learning_rate: float = 0.002
    """Learning rate η."""
    decay: float = 0.075
    """Decay rate λ toward the trained weights."""
    epsilon: float = 0.001
    """Constant ε in the denominator of the update."""
    bptt: int = 5
    """Tokens between two updates."""

    def __post_init__(self) -> None:
        is_finite = all(map(math.isfinite, (self.learning_rate, self.epsilon, self.decay)))
        if not (is_finite and self.learning_rate > 0 and self.epsilon > 0 and self.decay >= 0 and self.bptt >= 1):
            raise ConfigurationError(
                "dynamic evaluation needs a finite learning rate and epsilon above 0, a finite decay that is not "
                "negative, and a bptt of at least 1, not "
                f"{self.learning_rate}, {self.epsilon}, {self.decay} and {self.bptt}"
            )


def _published(table: PublishedTable, column: str) -> Dynamic:
    numbers: dict[str, Any] = table.numbers(column)
    return Dynamic(**{name: value for name, value in numbers.items() if name != "batch_size"})


_MOS = tables("mos", "9")[0]
AWD_LSTM = _published(tables("krause", "code")[0], "sum")
"""Settings of AWD-LSTM's Softmax on both corpora: Krause et al. 2018 (``--oldhyper`` in their code)."""
MOS = {corpus: _published(_MOS, corpus) for corpus in _MOS.columns}
"""Settings of MoS by corpus: Yang et al. 2018, table 9."""


def published_dynamic(head: str, corpus: str) -> Dynamic:
    """Return the settings of published numbers for a head on a corpus, both by name.

    For MoS on Penn Treebank and WikiText-2 they are those of Yang et al. 2018, otherwise those of AWD-LSTM.

    Example:
        >>> published_dynamic("mos", "ptb").decay, published_dynamic("softmax", "ptb").decay
        (0.075, 0.02)
    """
    return MOS.get(corpus, AWD_LSTM) if head == "mos" else AWD_LSTM


@contextmanager
def differentiable(model: LanguageModel) -> Iterator[dict[str, nn.Parameter]]:
    """Yield the learned parameters by name, with the model in eval mode and ready for backward passes.

    Products have full precision. cuDNN has no backward pass for recurrent layers in eval mode, so these are in training
    mode with their dropout at zero. Afterwards every part has its mode again, and gradients are removed.
    """
    recurrent = {module: module.dropout for module in model.modules() if isinstance(module, nn.RNNBase)}
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    with evaluating(model, writes=True), torch.enable_grad(), full_precision(gradients=True):
        try:
            for module in recurrent:
                module.train()
                module.dropout = 0.0
            yield parameters
        finally:
            for module, dropout in recurrent.items():
                module.eval()
                module.dropout = dropout
            for parameter in parameters.values():
                parameter.grad = None


def gradient_statistics(
    model: LanguageModel,
    ids: NDArray[np.integer[Any]],
    *,
    batch_size: int = BATCH_SIZE,
    file: Path | None = None,
    identity: str = "",
    progress: Progress = SILENT,
) -> dict[str, Tensor]:
    """Return squared gradients of the mean negative log-likelihood, summed over batches of a text.

    They are those of each learned parameter, by its name, of its shape and dtype.

    Args:
        model: the model; no dropout is applied, including weight drop.
        ids: int64, (N,), the training text.
        batch_size: number of parallel texts; a short text has fewer.
        file: file that keeps the statistics, where it can be written; it is read if it holds those of the same
            ``identity`` and sizes.
        identity: hash of model and text.
        progress: progress display.

    Raises:
        TrainingError: for a text of fewer than two tokens.
    """
    batch_size = max(1, min(batch_size, len(ids) // 2))
    description = {"identity": identity, "batch_size": batch_size, "bptt": BPTT}
    with suppress(*tensor_file.DAMAGE):
        saved, about = tensor_file.read(file, key="statistics") if file is not None else ({}, None)
        if about == description:
            return saved
    data, device = columns(ids, batch_size), model.head.weight.device
    segments = lengths(len(data), BPTT)
    with differentiable(model) as parameters, progress.bar("gradient statistics", len(segments), "batches") as bar:
        sums = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
        state = model.backbone.initial_state(batch_size)
        for batch in bptt_segments(data, segments):
            hidden, after = model.hidden(batch.inputs.to(device), state)
            state = tuple(tensor.detach() for tensor in after)
            model.zero_grad()
            model.head.nll(hidden, batch.targets.to(device)).backward()
            for name, parameter in parameters.items():
                if parameter.grad is not None:
                    sums[name].addcmul_(parameter.grad, parameter.grad)
            bar.advance(1)
    if file is not None:
        try:
            write_bytes(file, tensor_file.pack(sums, key="statistics", about=description))
        except OutputError as error:
            progress.line(f"the gradient statistics are not kept, and the next evaluation computes them again: {error}")
    return sums


def dynamic_evaluate(
    model: LanguageModel,
    ids: NDArray[np.integer[Any]],
    statistics: Mapping[str, Tensor],
    settings: Dynamic | None = None,
    *,
    progress: Progress = SILENT,
) -> Perplexity:
    r"""Score every token of a text but the first, with an update of the weights after each few of them.

    .. math:: θ ← θ + λ\, \min(D, 1/λ)\, (θ_0 - θ) - η\, \frac{g}{R + ε}

    with g the gradient of the tokens just scored, R the root of the sum over the training text's batches of the squared
    gradients, and D = R / Σ mean(R), the sum running over the weight matrices and vectors, as in the MoS authors' code.
    (Krause et al. 2018 print the root of the mean, and D = R / mean(R): with N batches and P matrices and vectors, η
    and ε are √N times theirs here, and λ is P times.) A token is scored before the update that uses it. No dropout is
    applied, including weight drop.

    Args:
        model: model to score; its weights and mode are restored.
        ids: int64, (N,), N ≥ 2.
        statistics: the result of `gradient_statistics` for the training text.
        settings: settings of the update; by default `Dynamic()`.
        progress: where to report.

    Raises:
        TrainingError: the text is too short, or the loss grows beyond any perplexity.

    References:
        Krause, Kahembwe, Murray and Renals 2018, "Dynamic Evaluation of Neural Sequence Models", eq. 5 to 8.
    """
    settings = settings or Dynamic()
    check_scorable(ids)
    text = torch.from_numpy(ids).to(model.head.weight.device, torch.int64).unsqueeze(1)
    total, state = 0.0, model.backbone.initial_state(1)
    with differentiable(model) as weights, progress.bar("dynamic evaluation", len(text) - 1, "tokens") as bar:
        update = _Update(weights, statistics, settings)
        try:
            for start in range(0, len(text) - 1, settings.bptt):
                targets = text[start + 1 : start + 1 + settings.bptt]
                hidden, after = model.hidden(text[start : start + len(targets)], state)
                state = tuple(tensor.detach() for tensor in after)
                nll = model.head.nll(hidden, targets)
                total += nll.item() * len(targets)
                if not total <= MOST_NATS * (len(text) - 1):
                    raise TrainingError(
                        f"dynamic evaluation diverged by token {start + len(targets)}: lower ",
                        Parameter("learning_rate"),
                        f" (now {settings.learning_rate:g}) or raise ",
                        Parameter("epsilon"),
                        f" (now {settings.epsilon:g})",
                    )
                nll.backward()
                update()
                bar.advance(len(targets))
        finally:
            update.undo()
    return Perplexity(total / (len(text) - 1), len(text) - 1, how="dynamic", settings=asdict(settings))


class _Update:
    """The update of all weights after a segment of text."""

    def __init__(self, weights: dict[str, nn.Parameter], statistics: Mapping[str, Tensor], settings: Dynamic) -> None:
        self._weights: list[Tensor] = list(weights.values())
        roots = [statistics[name].to(weight.device).sqrt() for name, weight in weights.items()]
        usual = torch.stack([root.mean() for root in roots]).sum()
        self._start = [weight.detach().clone() for weight in self._weights]
        self._pulls = [(settings.decay * root / usual).clamp(max=1.0) for root in roots]
        self._rates = [settings.learning_rate / (root + settings.epsilon) for root in roots]

    @torch.no_grad()
    def __call__(self) -> None:
        gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in self._weights]
        steps = torch._foreach_sub(self._start, self._weights)
        torch._foreach_mul_(steps, self._pulls)
        torch._foreach_addcmul_(steps, gradients, self._rates, value=-1)
        torch._foreach_add_(self._weights, steps)
        for weight in self._weights:
            weight.grad = None

    @torch.no_grad()
    def undo(self) -> None:
        """Restore the trained weights."""
        for weight, start in zip(self._weights, self._start, strict=True):
            weight.copy_(start)
