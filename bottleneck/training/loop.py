"""The steps of a training run, from its last saved state to its last epoch."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from ..core.devices import ask
from ..core.files import json_lines, write_bytes
from ..core.interruption import INTERRUPTIONS, Stop, note_if_interrupted
from ..core.json_file import check_schema
from ..core.parallel import Processes
from ..core.progress import SILENT, Bar, Progress
from ..corpora import Corpus
from ..errors import RunError, TrainingError
from ..language_models.backbones import State
from ..language_models.checkpoint import (
    MODEL,
    TIMING,
    keep_checkpoint,
    load_tensors_into,
    model_tensors,
    read_state,
    save_model,
    state_files,
    write_state,
)
from ..language_models.model import LanguageModel
from ..language_models.reading import Batch
from . import optimizer as optimizers
from .config import RunConfig
from .epochs import Epochs, validated_after
from .evaluate import mean_nll, perplexity_of, text_of
from .objective import Objective, accumulate
from .optimizer import is_non_monotone, starts_averaging
from .state import TrainerState, write_metrics

EXPLODED = 20
"""Largest accepted loss, as a multiple of the uniform distribution's; training does not recover from a larger one."""
OUT_OF_MEMORY = "can't allocate memory", "out of memory", "alloc_failed"
"""Parts of the error messages of the CPU, CUDA and its libraries."""


class Loop:
    """The training loop and its state.

    The ``folder`` is prepared, and the ``model`` has its initial weights and is on its device. Of the ``processes``
    that train together the first reports progress.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        corpus: Corpus,
        data: Epochs,
        model: LanguageModel,
        *,
        processes: Processes,
        progress: Progress,
    ) -> None:
        self.config, self.settings, self.folder, self.corpus = config, config.training, folder, corpus
        self.model, self.processes, self.progress = model, processes, progress if processes.first else SILENT
        self.device = model.head.weight.device
        self.width = self.settings.batch_size // processes.count
        self.data = data
        self.steps = data.steps(self.settings.epochs)
        self.optimizer = optimizers.build(self.settings.optimizer, model.parameters(), model.head.parameter_settings())
        self.state, self.carried = TrainerState(), self._fresh(self.width)
        self.average: AveragedModel | None = None
        if (saved := self._last_state()) is None:
            self._begin()
        else:
            self._load(saved)
        mixed = self.settings.precision == "bfloat16"
        objective = Objective(model, mixed=mixed, fraction=self.settings.loss_fraction)
        if self.settings.compile:
            objective.compile(dynamic=True)
        self.objective = processes.wrap(objective)
        self.stop = Stop()
        self.saved = self.checked = time.monotonic()

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that training goes on from, tensors by name and the numbers of `TrainerState`.

        The tensors are those of the ``model``, the ``optimizer``, the ``average``, the recurrent state of all columns
        (``carried``), and the ``random`` generators of each process; all processes must call.
        """
        many = self.processes.count > 1
        columns = self.processes.gather([tensor.cpu() for tensor in self.carried] if many else self.carried)
        carried = (torch.cat(pieces, 1) for pieces in zip(*columns, strict=True))
        generators = {"cpu": torch.get_rng_state()}
        if (state := ask(self.device, "get_rng_state", self.device)) is not None:
            generators[self.device.type] = state
        parts: dict[str, Mapping[str, Tensor]] = {
            "model": model_tensors(self.model),
            "carried": {str(index): tensor for index, tensor in enumerate(carried)},
            "average": {} if self.average is None else dict(self.average.module.named_parameters()),
            **{f"optimizer.{index}": values for index, values in self.optimizer.state_dict()["state"].items()},
            **{f"random.{process}": states for process, states in enumerate(self.processes.gather(generators))},
        }
        tensors = {f"{part}.{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
        return tensors, vars(self.state)

    def load_state_dict(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Go on from a state. `RunError` for one of another number of processes, or of another model."""

        def part(name: str) -> dict[str, Tensor]:
            return {key.removeprefix(f"{name}."): each for key, each in tensors.items() if key.startswith(f"{name}.")}

        saved_by = sum(name.startswith("random.") and name.endswith(".cpu") for name in tensors)
        if saved_by not in (0, self.processes.count):
            raise RunError(
                f"the saved state in {self.folder} is that of {saved_by} processes, not {self.processes.count}: start "
                f"{saved_by} again"
            )
        load_tensors_into(self.model, part("model"), where=self._last_state() or self.folder)
        check_schema(numbers, TrainerState)
        self.state = TrainerState(**numbers)
        groups = self.optimizer.state_dict()["param_groups"]
        moments = {number: part(f"optimizer.{number}") for group in groups for number in group["params"]}
        states = {number: saved for number, saved in moments.items() if saved}
        self.optimizer.load_state_dict({"state": states, "param_groups": groups})
        carried = part("carried")
        self.carried = tuple(carried[str(index)][:, self.data.part].to(self.device) for index in range(len(carried)))
        if self.state.averaged is not None:
            self.average = AveragedModel(self.model)
            self.average.n_averaged.fill_(self.state.averaged)
            self.average.module.load_state_dict(part("average"), strict=False)  # tied weights are there once
        generators = part(f"random.{self.processes.index}")
        torch.set_rng_state(generators["cpu"])
        if self.device.type in generators:
            ask(self.device, "set_rng_state", generators[self.device.type], self.device)

    def run(self) -> None:
        """Train to the last epoch, or until early stopping.

        After Ctrl-C or SIGTERM, the state is saved at the end of the step before the interruption is raised.
        `TrainingError` for a loss or gradient that is not finite, or too little memory; saved files are complete.
        """
        step, size = self.state.step, f"{self.model.parameter_count():,} parameters on {self.device.type}"
        begins = f"continuing from step {step:,} of {self.steps:,}" if step else f"{self.steps:,} steps"
        with note_if_interrupted(self._saved_work), self.stop.deferred(), self._in_memory():
            self.progress.line(f"{self.folder}: {begins}, {size}, corpus {self.corpus.name}")
            if self.config.initial is not None and not self.state.metrics:
                # The weights that training starts from are the best so far.
                self.state.metrics.append(self.processes.in_first(lambda: self._validate(0)))
                self.state.best_loss = self.state.metrics[0]["valid_loss"]
            with self.progress.bar("training", self.steps, "steps", done=self.state.step) as bar:
                while self.state.epoch < self.settings.epochs and not self._is_to_stop():
                    self._epoch(bar)
            self.stop.obey()
        if self.state.epoch < self.settings.epochs:
            self.progress.line(f"stopped early, at step {self.state.step:,}: the validation loss no longer improves")
        if self.processes.first:
            write_metrics(self.folder, self.state.metrics)

    def timed_steps(self, most: int, seconds: float, bar: Bar) -> list[float]:
        """Make one step and then at most so many more; return the seconds of each of these.

        No step begins after so many ``seconds``. The state is not saved; if weights may be averaged, they are.
        """
        if self.settings.averaging.start != "never" and self.average is None:
            self._start_averaging()
        self.model.train()
        times: list[float] = []
        with self._in_memory():
            for length, batch in zip(self.data.lengths(0), self.data.batches(0), strict=True):
                started = time.perf_counter()
                self._step(batch, length, bar)
                ask(self.device, "synchronize")
                times.append(time.perf_counter() - started)
                if len(times) > most or (len(times) > 1 and sum(times) > seconds):
                    break
        return times[1:] or times

    def _fresh(self, columns: int) -> State:
        """Return the state that an epoch starts in: nothing if every batch brings its own contexts."""
        return self.model.backbone.initial_state(columns) if self.data.carries else ()

    def _begin(self) -> None:
        """Initialize the output bias, the random seed of this process, and averaging."""
        if self.settings.unigram_bias and self.config.initial is None:
            counts = self.data.counts(self.model.head.vocab_size) + 1.0
            if unseen := int((counts == 1).sum()):
                self.progress.line(f"{unseen:,} of {len(counts):,} tokens do not occur in the training text")
            self.model.head.init_bias(torch.log(counts / counts.sum()).to(self.device))
        if self.processes.index:  # all processes have the same initial weights, and different dropout masks
            torch.manual_seed((self.config.seed + self.processes.index) % 2**64)
        if starts_averaging(self.settings.averaging, [], epochs=0):
            self._start_averaging()

    def _start_averaging(self) -> None:
        """Average the weights after each step from the next one on, as ASGD does (Polyak and Juditsky 1992).

        As in AWD-LSTM there is no decay, and the learning rate is constant.
        """
        self.average, self.state.averaged = AveragedModel(self.model), 0

    def _is_to_stop(self) -> bool:
        """Return whether to stop early. If weights are averaged, only the losses of averaged weights count."""
        interval, averaging = self.settings.stop_interval, self.settings.averaging.start != "never"
        rows = [row for row in self.state.metrics if row.get("averaged_steps")] if averaging else self.state.metrics
        return interval is not None and is_non_monotone([row["valid_loss"] for row in rows], interval)

    def _epoch(self, bar: Bar) -> None:
        state = self.state
        self.model.train()
        pieces = self.data.lengths(state.epoch)
        end = sum(pieces)
        checks = validated_after(pieces, self.settings.validations)
        if state.position == 0:
            self.carried = self._fresh(self.width)
        elif state.position in checks and not state.is_validated:  # the run was interrupted here
            self._check(epochs=state.epoch + (state.position == end))
        done = int(np.searchsorted(np.cumsum(pieces), state.position, side="right"))
        for length, batch in zip(pieces[done:], self.data.batches(state.epoch, start=state.position), strict=True):
            if self._is_to_stop():
                break
            self._step(batch, length, bar)
            if self._is_interrupted():
                self._save()
                self.stop.obey()  # a handler of the caller's may let training go on
                if self.processes.count > 1:  # the signal may have come to another process only
                    raise KeyboardInterrupt
            if state.position in checks:
                self._check(epochs=state.epoch + (state.position == end))
            if state.position < end and (state.step % self.settings.save_every == 0 or state.position in checks):
                self._save()
        if state.position == end:
            state.epoch, state.position = state.epoch + 1, 0
            self._save()

    def _step(self, batch: Batch, length: int, bar: Bar) -> None:
        """Update the weights once; the position moves on by ``length``."""
        settings, state = self.settings, self.state
        rate = optimizers.learning_rate(settings.optimizer, step=state.step, steps=self.steps)
        if settings.bptt_deviation:
            rate *= length / settings.bptt
        scored = batch.scored
        optimizers.set_learning_rate(self.optimizer, rate)
        self.optimizer.zero_grad(set_to_none=True)
        batch = batch.to(self.device)
        nll, self.carried = accumulate(self.objective, batch, self.carried, columns=settings.micro_batch_size)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.optimizer.clip)
        value = self._finite(self.processes.mean(nll), norm)
        self.optimizer.step()
        state.step += 1
        if self.average is not None:
            self.average.update_parameters(self.model)
            state.averaged = int(self.average.n_averaged)
        state.position += length
        state.learning_rate = rate
        state.loss_sum += value * scored
        state.loss_tokens += scored
        bar.advance(1, f"epoch {state.epoch + 1}/{settings.epochs}, loss {state.loss_sum / state.loss_tokens:.3f}")

    def _is_interrupted(self) -> bool:
        """Return whether a signal has come, to any of the processes: all of them save the same step."""
        if self.processes.count == 1:
            return self.stop.requested
        return bool(self.processes.sum(torch.tensor(float(self.stop.requested), device=self.device)))

    def _saved_work(self) -> str:
        """Return what an interruption leaves in the folder."""
        step, file = self.state.step, self._last_state()
        if file is None:
            return f"training stopped at step {step:,}, and nothing is saved yet: run the same command to start over"
        saved = int(file.stem.removeprefix("step-"))
        which = "its state is saved" if saved == step else f"the state of step {saved:,} is saved"
        return (
            f"training stopped at step {step:,} of {self.steps:,}; {which} in {self.folder}, and the same command "
            "continues from there"
        )

    @contextmanager
    def _in_memory(self) -> Iterator[None]:
        """Raise `TrainingError` with a remedy when memory runs out."""
        try:
            yield
            return
        except (MemoryError, RuntimeError) as error:
            # Torch's `OutOfMemoryError` covers only its own memory on a GPU.
            is_memory_error = isinstance(error, MemoryError | torch.OutOfMemoryError)
            if not is_memory_error and not any(words in str(error).lower() for words in OUT_OF_MEMORY):
                raise
        columns = min(self.settings.micro_batch_size or self.width, self.width)
        remedy = f"train a smaller model, or with training.bptt below {self.settings.bptt}, into a new folder"
        if columns > 1:
            remedy = (
                f"set training.micro_batch_size={columns // 2}, and parts of that many columns add up their gradients"
            )
            if self._last_state():
                remedy += ", and name another folder, because each part draws its own dropout masks and predictions"
        raise TrainingError(f"out of memory at step {self.state.step}; the saved state is in {self.folder}: {remedy}")

    def _finite(self, nll: Tensor, norm: Tensor) -> float:
        """Return the loss as a number; refuse a loss or gradient norm that is too large or not finite."""
        value, length = torch.stack([nll, norm.to(nll)]).tolist()  # one transfer from the device
        self._refuse_exploded("loss", value)
        self._refuse_exploded("gradient's norm", length, most=sys.float_info.max)
        return float(value)

    def _refuse_exploded(self, what: str, number: float, most: float | None = None) -> None:
        """Raise `TrainingError` for a number above ``most``, by default the largest accepted loss in nats, or NaN."""
        if most is None:
            most = EXPLODED * max(1.0, math.log(self.model.head.vocab_size))
        if number <= most:  # false for NaN
            return
        optimizer = self.settings.optimizer
        saved = f"the last saved state is in {self.folder}" if self._last_state() else "no state was saved before"
        text = (
            f"the {what} became {number:g} at step {self.state.step}; {saved}: lower "
            f"training.optimizer.learning_rate (now {optimizer.learning_rate:g}) or training.optimizer.clip "
            f"(now {optimizer.clip:g}) and train into a new folder"
        )
        if (self.folder / MODEL).exists():
            text += f"; initial={self.folder} starts from its best weights"
        raise TrainingError(text)

    def _check(self, *, epochs: int) -> None:
        """Validate, save the weights if they are the best, and start averaging if it is due.

        ``epochs`` is the number of finished epochs.
        """
        state = self.state
        try:
            row = self.processes.in_first(lambda: self._validate(self.state.epoch + 1))
        except INTERRUPTIONS:
            if self.processes.count == 1:  # several cannot save without each other
                self._save()
            raise
        seconds, self.checked = time.monotonic() - self.checked, time.monotonic()
        state.metrics.append(row)
        state.best_loss = min(row["valid_loss"] for row in state.metrics)
        state.loss_sum, state.loss_tokens = 0.0, 0
        self.progress.line(
            f"epoch {row['epoch']}/{self.settings.epochs}, step {row['step']:,}: train perplexity "
            f"{row['train_perplexity']:.2f}, valid perplexity {row['valid_perplexity']:.2f} ({seconds:.0f} s)"
        )
        if self.average is None and starts_averaging(self.settings.averaging, state.losses, epochs=epochs):
            self._start_averaging()
            self.progress.line("averaging of the weights starts")
        if self.processes.first:
            write_metrics(self.folder, state.metrics)

    def _validate(self, epoch: int) -> Any:
        """Return a row with the validation loss; save the weights if they are the best or all are kept.

        The row of the weights that training starts from, epoch 0, has no numbers of the steps before it.
        """
        state = self.state
        row: dict[str, Any] = {"epoch": epoch, "step": state.step}
        if epoch:
            train_loss = state.loss_sum / state.loss_tokens
            row |= {"learning_rate": state.learning_rate, "train_loss": train_loss}
            row["train_perplexity"] = perplexity_of(train_loss)
        averaged = state.averaged or 0
        model = cast(LanguageModel, self.average.module) if self.average is not None and averaged else self.model
        with self.stop.at_once():
            valid_loss = mean_nll(model, text_of(model, self.corpus, "valid"), progress=self.progress)
        self._refuse_exploded("validation loss", valid_loss)
        row |= {"valid_loss": valid_loss, "valid_perplexity": perplexity_of(valid_loss)}
        row["best"] = state.best_loss is None or valid_loss < state.best_loss
        if self.settings.averaging.start != "never":
            row["averaged_steps"] = averaged
        if row["best"]:
            save_model(self.folder / MODEL, model)
        if self.settings.keep_checkpoints:
            keep_checkpoint(self.folder, model, step=state.step, metrics=json_lines([*state.metrics, row]))
        return row

    def _last_state(self) -> Path | None:
        return next(reversed(state_files(self.folder)), None)

    def _load(self, file: Path) -> None:
        """Go on from the state in a file; `RunError` for a damaged one."""
        try:
            self.load_state_dict(*read_state(file))
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise RunError(f"the saved state {file} is damaged ({error}); delete it to start the run over") from error

    def _save(self) -> None:
        """Save the state, and append the seconds since the last one to the run's timing file."""
        tensors, numbers = self.state_dict()
        if self.processes.first:
            write_state(self.folder, self.state.step, tensors, numbers)
            file, seconds, self.saved = self.folder / TIMING, time.monotonic() - self.saved, time.monotonic()
            rows = file.read_bytes() if file.exists() else b""
            write_bytes(file, rows + json_lines([{"step": self.state.step, "seconds": round(seconds, 3)}]))
