"""Output layers trained on the hidden states of a pretrained model, one file a run; an hour on one core.

    bottleneck data get smollm2
    bottleneck data get wikitext-2
    python notebooks/studies/frozen_body.py --out figures/results/frozen-body

The body is not trained: its states are computed once. Every output layer starts with the model's W, not tied to the
input embeddings, and learns in one pass over the same contexts at a constant learning rate. What is scored are averages
of the weights, so that the course of one run shows what any shorter run reaches, such as one of equal time.
"""

from __future__ import annotations

import copy
import json
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from softmax_bottleneck.core.files import cache_folder, make_folder, sha256_json, write_bytes, write_json
from softmax_bottleneck.core.tensor_file import pack, read
from softmax_bottleneck.hugging_face.headed import OutputLayer
from softmax_bottleneck.integrations.transformers import output_layer
from softmax_bottleneck.measure import RankReport, rank
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.spectrum import write_spectra
from study import main, ranks, run_missing

MODEL = "smollm2"
HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax": ("softmax", {}),
    "softmax-bias": ("softmax", {"bias": True}),
    "softmax-linear": ("softmax", {}),
    "softmax-mlp": ("softmax", {}),
    "mos-2": ("mos", {"components": 2}),
    "mos-4": ("mos", {"components": 4}),
    "lms-plif": ("lms-plif", {"knots": 1000}),
    "sigsoftmax": ("sigsoftmax", {}),
}
"""Registered head and settings by name. Two softmaxes have a residual map before them, with as many parameters as the
largest mixture adds: they separate the mixture's rank from its parameters."""
MAPS: dict[str, nn.Module] = {"softmax-linear": nn.Identity(), "softmax-mlp": nn.GELU()}
"""Function between the two matrices of the map."""
RATES, SEEDS = (3e-5, 1e-4, 3e-4), (0, 1, 2)
"""Learning rates of Adam. Seed 0 tries all, the other seeds take the one with the lowest loss."""
TRAIN, SCORED, RANKED = 12_288, 2_048, 1_024
"""Contexts of the training split, of the validation split, and those of the latter whose log-probabilities are
ranked."""
LENGTH, BATCH, WARMUP = 1_024, 256, 4
"""Tokens of a window, which do not overlap; contexts of a step; steps of linear warm-up."""
SCORES = (4, 2, 1)
"""The loss is computed after 1/4, 1/2 and all of the steps."""
BLOCK = 256
"""Contexts in a block whose mean loss is kept, so that the error of a difference between heads can be estimated."""
DECAY = 8
"""η of polynomial-decay averaging (Shamir and Zhang 2013, §4)."""


@dataclass(frozen=True)
class FrozenBodyCell:
    """One run of the study."""

    head: str
    seed: int
    rate: float | None
    """Learning rate; ``None`` for the one that is best with seed 0."""

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self.head}-{'best' if self.rate is None else f'{self.rate:g}'}-seed{self.seed}"


def cells() -> Iterator[FrozenBodyCell]:
    """Yield the runs: first seed 0 with all learning rates, then the other seeds."""
    for seed in SEEDS:
        for head in HEADS:
            yield from (FrozenBodyCell(head, seed, rate) for rate in ((None,) if seed else RATES))


class States(NamedTuple):
    """What the output layer is given on a split, and the token that follows."""

    hidden: Tensor
    """(T, d), float32."""
    targets: Tensor
    """(T,), int64."""


def study_frozen_body(out: Path, *, data: str, minutes: float) -> int:
    """Train and measure the runs that have no result yet, and return how many the study still lacks.

    The folder ``out`` also gets the rank report and the spectrum of each head with seed 1; see `run_missing`.

    Raises:
        SourceError: for the pretrained model, if it is not on this machine.
        CorpusError: for a text that is missing.
    """

    @cache
    def prepared() -> tuple[nn.Linear, States, States]:
        train, source = _states(data, "train", TRAIN)
        valid, _ = _states(data, "valid", SCORED)
        weight = source.full_head.weight.detach()
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
        layer.weight = nn.Parameter(weight)
        return layer, train, valid

    def run(cell: FrozenBodyCell) -> dict[str, Any]:
        rate = best_rate(out, cell.head) if cell.rate is None else cell.rate
        values, report = _run(cell, rate, *prepared())
        if report is not None and cell.seed == 1:
            stem = make_folder(out / "spectra") / f"{cell.head}.json"
            write_json(stem, report.to_dict())
            write_spectra(stem.with_suffix(".npz"), [report.saved_spectrum])
        return values

    return run_missing(out, cells(), run, kind="frozen-body", shown="perplexity", minutes=minutes)


def best_rate(out: Path, head: str) -> float:
    """Return the learning rate with which a head has the lowest perplexity with seed 0."""
    files = {rate: out / f"{FrozenBodyCell(head, 0, rate).name}.json" for rate in RATES}
    return min(RATES, key=lambda rate: float(json.loads(files[rate].read_text(encoding="utf-8"))["perplexity"]))


def _states(data: str, split: str, contexts: int) -> tuple[States, Any]:
    """Return the states of a split, computed once and then kept in the cache, and the model on its text."""
    source: Any = open_source(MODEL, data=data, split=split, contexts=contexts, context_length=LENGTH, stride=LENGTH)
    key = sha256_json({**source.identity, "contexts": contexts})
    file = make_folder(cache_folder() / "states") / f"{key[:32]}.safetensors"
    if not file.exists():
        hidden = torch.cat([*source.hidden([range(contexts)])])
        write_bytes(file, pack({"hidden": hidden}, key="states"))
    tensors, _ = read(file, key="states")
    return States(tensors["hidden"], torch.from_numpy(source.targets[:contexts])), source


class ResidualMap(nn.Module):
    """``h + U f(V h) + c``, where U and c start at 0, with as many parameters as a residual `MoS` adds to a softmax.

    Args:
        size: d.
        components: K of the mixture.
        function: f.
    """

    def __init__(self, size: int, *, components: int, function: nn.Module) -> None:
        super().__init__()
        width = round((components * (size + 2) - 1) / 2)  # 2 d width + d = K d (d + 2)
        self.inner, self.function, self.outer = nn.Linear(size, width, bias=False), function, nn.Linear(width, size)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, d) → (…, d)."""
        mapped: Tensor = hidden + self.outer(self.function(self.inner(hidden)))
        return mapped


def _layer(name: str, plain: nn.Linear, seed: int) -> OutputLayer:
    """Return an output layer that starts with a copy of W."""
    torch.manual_seed(seed)
    own = copy.deepcopy(plain)
    head, settings = HEADS[name]
    layer = output_layer(own, head, **settings)
    if name in MAPS:
        layer.input = ResidualMap(own.in_features, components=HEADS["mos-4"][1]["components"], function=MAPS[name])
    return layer


def _run(
    cell: FrozenBodyCell, rate: float, plain: nn.Linear, train: States, valid: States
) -> tuple[dict[str, Any], RankReport | None]:
    """Train one output layer; measure it, and its rank if the learning rate is the best."""
    layer = _layer(cell.head, plain, cell.seed)
    start = {} if cell.rate else {"start_perplexity": math.exp(_losses(layer, valid).mean())}
    average, trained = _train(layer, train, valid, rate=rate, seed=cell.seed)
    values = {
        "rate": rate,
        "tokens": len(train.targets),
        "scored": len(valid.targets),
        "added_parameters": sum(each.numel() for each in layer.parameters()) - plain.weight.numel(),
        **start,
        **trained,
        "perplexity": math.exp(trained["course"][-1][1]),
    }
    if cell.rate is not None:
        return values, None
    with torch.no_grad():
        values["float32_perplexity"] = math.exp(_losses(average, valid, torch.float32).mean())
        report = rank(average.head, hidden=average.states(valid.hidden[:RANKED]))
    return {**values, **ranks(report)}, report


def _train(
    layer: OutputLayer, train: States, valid: States, *, rate: float, seed: int
) -> tuple[OutputLayer, dict[str, Any]]:
    """Train in one pass over the contexts; return the average, and its course: steps and loss in nats."""
    optimizer = torch.optim.Adam(layer.parameters(), lr=rate, fused=True)
    average = copy.deepcopy(layer).requires_grad_(False).eval()
    order = torch.randperm(len(train.targets), generator=torch.Generator().manual_seed(seed))
    batches = order.split(BATCH)
    scored = {len(batches) // part for part in SCORES}
    course: list[tuple[int, float]] = []
    seconds: list[float] = []
    losses = torch.empty(0)
    for step, batch in enumerate(batches, start=1):
        began = time.process_time()
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / WARMUP)
        with torch.autocast("cpu", torch.bfloat16):
            loss = layer.head.nll(layer.states(train.hidden[batch]), train.targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            share = (DECAY + 1) / (DECAY + step)
            torch._foreach_lerp_([*average.parameters()], [*layer.parameters()], share)
        seconds.append(time.process_time() - began)
        if step in scored:
            losses = _losses(average, valid)
            course.append((step, float(losses.mean())))
    return average, {
        "steps": len(batches),
        "seconds_a_step": statistics.median(seconds),
        "course": course,
        "blocks": [float(block.mean()) for block in losses.split(BLOCK)],
    }


@torch.no_grad()
def _losses(layer: OutputLayer, states: States, products: torch.dtype = torch.bfloat16) -> Tensor:
    """Return the losses in nats, (T,), with matrix products in a type."""
    with torch.autocast("cpu", torch.bfloat16, enabled=products == torch.bfloat16):
        return layer.head.nll(layer.states(states.hidden), states.targets, reduction="none").double()


if __name__ == "__main__":
    main(study_frozen_body, "Train output layers on the frozen body of SmolLM2.")
