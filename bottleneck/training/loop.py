"""The steps of a training run, from its last saved state to its last epoch."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..checkpoint import METRICS, MODEL, TIMING, keep_checkpoint, save_model, state_files
from ..corpora import Corpus
from ..errors import TrainingError
from ..files import write_bytes
from ..language_model import LanguageModel
from ..parallel import Processes
from ..progress import SILENT, Bar, Progress
from . import optimizer as optimizers
from .averaging import WeightAverage, is_non_monotone, starts_averaging, validated_after
from .batches import lengths, stretches
from .config import RunConfig
from .evaluate import mean_nll, perplexity_of
from .objective import Objective, accumulate, is_dropping
from .state import TrainerState, load_state, random_states, save_state

EXPLODED = 20
"""A loss so many times that of the uniform distribution does not come down again."""
OUT_OF_MEMORY = "can't allocate memory", "out of memory", "alloc_failed"
"""What the CPU, CUDA and its libraries say."""


class Loop:
    """Everything that changes while a model is trained.

    The folder is prepared, and the model on its device with its first weights; ``data`` is the corpus's training split
    in columns, those of all ``processes``, of which the first reports.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        corpus: Corpus,
        data: Tensor,
        model: LanguageModel,
        *,
        processes: Processes,
        progress: Progress,
    ) -> None:
        self.config, self.settings, self.folder, self.corpus = config, config.training, folder, corpus
        self.model, self.processes, self.progress = model, processes, progress if processes.first else SILENT
        self.device = model.head.weight.device
        self.data = data[:, processes.share(self.settings.batch_size)]
        self.steps = sum(len(self._lengths(epoch)) for epoch in range(self.settings.epochs))
        self.optimizer = optimizers.build(self.settings.optimizer, model.parameters(), model.head.parameter_settings())
        self.average = WeightAverage(model)
        saved = load_state(
            folder, model, self.optimizer, average=self.average, process=processes.index, processes=processes.count
        )
        self.state, carried = saved or (TrainerState(), model.backbone.initial_state(self.settings.batch_size))
        self.carried = tuple(tensor[:, processes.share(self.settings.batch_size)] for tensor in carried)
        if saved is None:
            self._begin(data)
        objective = Objective(model, mixed=self.settings.precision == "bfloat16")
        if self.settings.compile:
            objective.compile(dynamic=True)
        self.objective = processes.wrap(objective)
        self.saved = self.checked = time.monotonic()

    def run(self) -> None:
        """Train to the last epoch, or until the validation loss says to stop.

        Raises:
            TrainingError: the loss or the gradient is not finite, or memory does not suffice; what was saved is whole.
        """
        with self._in_memory():
            if self.config.initial is not None and not self.state.metrics:
                self._check_start()
            while self.state.epoch < self.settings.epochs and not self._is_to_stop():
                self._epoch()
        if self.processes.first:
            write_metrics(self.folder, self.state.metrics)

    def _begin(self, data: Tensor) -> None:
        """Set what a run starts with beside its drawn weights."""
        if self.settings.unigram_bias and self.config.initial is None:
            counts = _counts(data, self.model.head.vocab_size).to(self.device) + 1.0
            self.model.head.start_at(torch.log(counts / counts.sum()))
        if self.processes.index:  # the first weights are the same in all processes, what is dropped is not
            torch.manual_seed((self.config.seed + self.processes.index) % 2**64)
        if starts_averaging(self.settings.averaging, [], epochs=0):
            self.average.start()

    def _check_start(self) -> None:
        """Keep the weights that training starts from: the best until others are better."""
        self.state.metrics.append(self.processes.in_first(lambda: self._validate({"epoch": 0, "step": 0})))
        self.state.best_loss = self.state.metrics[0]["valid_loss"]

    def _is_to_stop(self) -> bool:
        """Return whether the loss has risen; where weights are to be averaged only that of averages counts."""
        interval, averaging = self.settings.stop_interval, self.settings.averaging.start != "never"
        rows = [row for row in self.state.metrics if row.get("averaged_steps")] if averaging else self.state.metrics
        return interval is not None and is_non_monotone([row["valid_loss"] for row in rows], interval)

    def _lengths(self, epoch: int) -> list[int]:
        settings = self.settings
        seed = self.config.seed, epoch
        return lengths(len(self.data), settings.bptt, deviation=settings.bptt_deviation, seed=seed)

    def _epoch(self) -> None:
        state = self.state
        self.model.train()
        pieces, end = self._lengths(state.epoch), len(self.data) - 1
        checks = validated_after(pieces, self.settings.validations)
        if state.position == 0:
            self.carried = self.model.backbone.initial_state(self.data.shape[1])
        description = f"epoch {state.epoch + 1}/{self.settings.epochs}"
        with self.progress.bar(description, len(pieces), "steps") as bar:
            bar.advance(int(np.searchsorted(np.cumsum(pieces), state.position, side="right")))
            for position, inputs, targets in stretches(self.data, pieces, start=state.position):
                rate = self._step(position, inputs, targets, bar)
                if state.position in checks:
                    self._check(rate, epochs=state.epoch + (state.position == end))
                if state.position < end and (state.step % self.settings.save_every == 0 or state.position in checks):
                    self._save()
                if self._is_to_stop():
                    break
        if state.position == end:
            state.epoch, state.position = state.epoch + 1, 0
            self._save()

    def _step(self, position: int, inputs: Tensor, targets: Tensor, bar: Bar) -> float:
        """Make one update; return its learning rate."""
        settings, state = self.settings, self.state
        rate = optimizers.learning_rate(settings.optimizer, step=state.step, steps=self.steps)
        if settings.bptt_deviation:
            rate *= len(inputs) / settings.bptt
        optimizers.set_learning_rate(self.optimizer, rate)
        self.optimizer.zero_grad(set_to_none=True)
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        nll, self.carried = accumulate(self.objective, inputs, targets, self.carried, columns=settings.micro_batch_size)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.optimizer.clip)
        value = self._finite(self.processes.mean(nll), norm)
        self.optimizer.step()
        self.average.update()
        state.step += 1
        state.averaged = self.average.steps
        state.position = position + len(inputs)
        state.loss_sum += value * targets.numel()
        state.loss_tokens += targets.numel()
        bar.advance(1, f"loss {state.loss_sum / state.loss_tokens:.3f}")
        return rate

    @contextmanager
    def _in_memory(self) -> Iterator[None]:
        """Say what to do where memory does not suffice."""
        try:
            yield
            return
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
        columns = min(self.settings.micro_batch_size or self.data.shape[1], self.data.shape[1])
        remedy = (
            f"give the same command with --set training.micro_batch_size={columns // 2}, which adds up the gradients "
            "of so many columns"
            if columns > 1
            else f"train a smaller model, or with training.bptt below {self.settings.bptt}, into a new folder"
        )
        dropping = is_dropping(vars(self.model.backbone.config), self.model.head.settings)
        if columns > 1 and dropping and state_files(self.folder):
            remedy += ", and another --out, because each part of a batch draws dropout masks of its own"
        raise TrainingError(
            f"out of memory at step {self.state.step}; what was saved is kept in {self.folder}: {remedy}"
        )

    def _finite(self, nll: Tensor, norm: Tensor) -> float:
        """Return the loss as a number; both of a step's numbers come over from the device at once."""
        value, length = torch.stack([nll, norm.to(nll)]).tolist()
        self._refuse_exploded("loss", value)
        self._refuse_exploded("gradient's norm", length, most=sys.float_info.max)
        return float(value)

    def _refuse_exploded(self, what: str, number: float, most: float | None = None) -> None:
        """Stop where a number is beyond what training can come back from; without ``most``, a loss in nats."""
        if most is None:
            most = EXPLODED * max(1.0, math.log(self.model.head.vocab_size))
        if number <= most:  # NaN is not
            return
        optimizer = self.settings.optimizer
        text = (
            f"the {what} became {number:g} at step {self.state.step}; the last saved state is kept in "
            f"{self.folder}: lower training.optimizer.learning_rate (now {optimizer.learning_rate:g}) or "
            f"training.optimizer.clip (now {optimizer.clip:g}) and train into a new folder"
        )
        if (self.folder / MODEL).exists():
            text += f"; --set initial={self.folder} starts from its best weights"
        raise TrainingError(text)

    def _check(self, rate: float, *, epochs: int) -> None:
        """Validate, keep the weights when they are the best, and see whether averaging starts.

        ``rate`` is the last step's learning rate, ``epochs`` counts the finished ones.
        """
        state = self.state
        row = self.processes.in_first(lambda: self._validate(self._trained(rate)))
        seconds, self.checked = time.monotonic() - self.checked, time.monotonic()
        state.metrics.append(row)
        state.best_loss = min(row["valid_loss"] for row in state.metrics)
        state.loss_sum, state.loss_tokens = 0.0, 0
        self.progress.line(
            f"epoch {row['epoch']}/{self.settings.epochs}, step {row['step']:,}: train perplexity "
            f"{row['train_perplexity']:.2f}, valid perplexity {row['valid_perplexity']:.2f} ({seconds:.0f} s)"
        )
        if self.average.steps is None and starts_averaging(self.settings.averaging, state.losses, epochs=epochs):
            self.average.start()
            state.averaged = self.average.steps
            self.progress.line("from here on the weights are averaged")
        if self.processes.first:
            write_metrics(self.folder, state.metrics)

    def _trained(self, rate: float) -> dict[str, float | bool | int]:
        """Return what a row says of the training since the row before it."""
        train_loss = self.state.loss_sum / self.state.loss_tokens
        return {
            "epoch": self.state.epoch + 1,
            "step": self.state.step,
            "learning_rate": rate,
            "train_loss": train_loss,
            "train_perplexity": perplexity_of(train_loss),
        }

    def _validate(self, trained: dict[str, float | bool | int]) -> dict[str, float | bool | int]:
        """Return a row; the weights are kept when they are the best, or all are to be."""
        state = self.state
        averaged = {} if self.settings.averaging.start == "never" else {"averaged_steps": self.average.steps or 0}
        with self.average.swapped_in():
            valid_loss = mean_nll(self.model, self.corpus.split("valid"))
            self._refuse_exploded("validation loss", valid_loss)
            best = state.best_loss is None or valid_loss < state.best_loss
            row = {
                **trained,
                "valid_loss": valid_loss,
                "valid_perplexity": perplexity_of(valid_loss),
                "best": best,
                **averaged,
            }
            if best:
                save_model(self.folder / MODEL, self.model)
            if self.settings.keep_checkpoints:
                rows = metrics_bytes([*state.metrics, row])
                keep_checkpoint(self.folder, self.model, step=state.step, metrics=rows)
        return row

    def _save(self) -> None:
        many = self.processes.count > 1
        columns = self.processes.gather([tensor.cpu() for tensor in self.carried] if many else self.carried)
        carried = tuple(torch.cat(pieces, 1) for pieces in zip(*columns, strict=True))
        random = self.processes.gather(random_states(self.device))
        if self.processes.first:
            parts = self.model, self.optimizer, carried
            save_state(self.folder, self.state, *parts, average=self.average, random=random)
            self._keep_time()

    def _keep_time(self) -> None:
        """Add the seconds since the last saved state, so that a killed run still knows its time."""
        file, seconds, self.saved = self.folder / TIMING, time.monotonic() - self.saved, time.monotonic()
        rows = file.read_bytes() if file.exists() else b""
        write_bytes(file, rows + json.dumps({"step": self.state.step, "seconds": round(seconds, 3)}).encode() + b"\n")


def write_metrics(folder: Path, rows: list[dict[str, float | bool | int]]) -> bytes:
    """Write ``metrics.jsonl``, a row a validation; return what was written."""
    data = metrics_bytes(rows)
    write_bytes(folder / METRICS, data)
    return data


def metrics_bytes(rows: list[dict[str, float | bool | int]]) -> bytes:
    """Return ``metrics.jsonl``: a line of JSON a row."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _counts(data: Tensor, vocab_size: int) -> Tensor:
    """Count the tokens of all columns, one column at a time: they may be larger than memory."""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for column in data.T:
        counts += torch.bincount(column.contiguous(), minlength=vocab_size)
    return counts


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether memory is used up: torch has an error of its own for its own memory on a GPU alone."""
    said = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in said for words in OUT_OF_MEMORY)
