"""A callback for the ``Trainer`` of transformers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..core.checks import check_positive, typed
from ..errors import BottleneckError
from ..sources import open_source
from .statistics import model_statistics


class TransformersCallback(TrainerCallback):
    """A callback that logs rank, effective rank, pairwise KL and the gradient's share on held-out tokens.

    Only the first process measures; models with weights sharded over processes are not supported. Where a model cannot
    be measured, because its logits are not finite, the callback warns, and the training goes on.

    Args:
        data: held-out token ids, or a text with ``tokenizer``; see `model_statistics`.
        log: function that takes the numbers, such as ``trainer.log``, which passes them on to Weights & Biases,
            TensorBoard and the others of ``report_to``.
        every: steps between two measurements; another one follows at the end of training.
        tokenizer: tokenizer of a text.
        prefix: prefix of each number's name.

    Raises:
        ConfigurationError: for fewer than one step, or a ``log`` that is not a function.

    Example::

        trainer = Trainer(model, args, train_dataset=data)
        trainer.add_callback(TransformersCallback(held_out_ids, log=trainer.log, every=500))
        trainer.train()
    """

    @typed
    def __init__(
        self,
        data: Any,
        *,
        log: Callable[[dict[str, float]], None],
        every: int = 500,
        tokenizer: Any = None,
        prefix: str = "bottleneck/",
    ) -> None:
        check_positive(every=every)
        self.data = list(data) if isinstance(data, Iterator) else data  # it is read at every measurement
        self.log, self.every, self.tokenizer, self.prefix = log, every, tokenizer, prefix
        self._measured = -1

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any
    ) -> None:
        """Open the held-out text, so that one that cannot be read is refused before the first step."""
        self._measured = -1
        if state.is_world_process_zero:
            model = getattr(parts["model"], "module", parts["model"])
            open_source(model, data=self.data, tokenizer=self.tokenizer, dtype="auto")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any) -> None:
        """Measure every ``every`` steps."""
        if state.global_step % self.every == 0:
            self._measure(state, control, parts["model"])

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any) -> None:
        """Measure the trained model."""
        self._measure(state, control, parts["model"])

    def _measure(self, state: TrainerState, control: TrainerControl, model: Any) -> None:
        if not state.is_world_process_zero or state.global_step == self._measured:
            return
        self._measured = state.global_step
        try:
            statistics = model_statistics(getattr(model, "module", model), self.data, tokenizer=self.tokenizer)
        except BottleneckError as error:
            warnings.warn(f"nothing was measured at step {state.global_step}: {error}", stacklevel=2)
            return
        named = {f"{self.prefix}{name}": value for name, value in statistics.items()}
        should_log = control.should_log  # `Trainer.log` takes it back, and the loss of this step is still to be logged
        self.log(named)
        control.should_log = should_log
