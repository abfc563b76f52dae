"""One small transformer with several output layers, one file a run; 3.5 hours on one core.

    bottleneck data get wikitext-2
    python notebooks/studies/transformer.py --out figures/results/transformer-study

All models of a vocabulary and a width have as many parameters as the one with tied embeddings and a softmax: the
feed-forward layers of the others are narrower by what their head adds. They are trained for as many steps
(``"parameters"``), or for as many as take the processor time of the softmax (``"time"``).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import ByteLevelBPETokenizer
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from softmax_bottleneck.hugging_face.loading import final_hidden
from softmax_bottleneck.hugging_face.text import read_text
from softmax_bottleneck.integrations.transformers import with_head
from softmax_bottleneck.measure import gradient, rank
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.training.config import OptimizerConfig
from softmax_bottleneck.training.optimizer import build, learning_rate, set_learning_rate
from study import main, ranks, run_missing

HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax": ("softmax", {}),
    "softmax-untied": ("softmax", {}),
    "mos-2": ("mos", {"components": 2}),
    "mos-4": ("mos", {"components": 4}),
    "mos-2-low-rank": ("mos", {"components": 2}),
    "lms-plif": ("lms-plif", {"knots": 1000}),
    "sigsoftmax": ("sigsoftmax", {}),
}
"""Registered head and settings by name. All but one share W with the input embeddings. The low-rank mixture makes its
context vectors through d/8 dimensions, the ratio of openai/parameter-golf pull request 266. PLIF has 1,000 knots: with
100,000, its default, it would have more parameters than the smallest body."""
LAYERS, VOCABULARIES, SEEDS = 6, (1024, 8192), (0, 1, 2)
LENGTH, BATCH = 128, 8
"""Tokens of a text, and texts of a step."""
STEPS, WARMUP, DECAY = 500, 15, 0.1
"""AdamW: steps, steps of linear warm-up before a cosine to 0, weight decay of matrices."""
RATES = {32: 4e-3, 128: 2e-3}
"""Learning rate by width; docs/transformers.md has what others reach."""
TEST_BYTES, CONTEXTS = 50_000, 1024
"""Bytes of the test split that are scored, and contexts whose log-probabilities are ranked."""


@dataclass(frozen=True)
class TransformerCell:
    """One run of the grid."""

    vocab: int
    size: int
    head: str
    regime: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"M{self.vocab}-d{self.size}-{self.head}-{self.regime}-seed{self.seed}"


def cells() -> Iterator[TransformerCell]:
    """Yield the grid: the small models first, and of a width equal steps before equal time, each with all seeds."""
    for size, regime, seed, vocab, head in product(RATES, ("parameters", "time"), SEEDS, VOCABULARIES, HEADS):
        if (regime, head) != ("time", "softmax"):
            yield TransformerCell(vocab, size, head, regime, seed)


def study_transformers(out: Path, *, data: str, minutes: float) -> int:
    """Train and measure the runs of the grid that have no result yet, and return how many the grid still lacks.

    ``data`` is a corpus or a ``.txt`` file; see `run_missing` for the others. `CorpusError` for a text that is missing.
    """
    texts: dict[int, Text] = {}

    def run(cell: TransformerCell) -> dict[str, Any]:
        if cell.vocab not in texts:
            texts[cell.vocab] = _text(data, cell.vocab)
        return _run(cell, texts[cell.vocab], STEPS if cell.regime == "parameters" else _steps_in_time(out, cell))

    return run_missing(out, cells(), run, kind="transformer-study", shown="bits_per_byte", minutes=minutes)


def _steps_in_time(out: Path, cell: TransformerCell) -> int:
    """Return the steps of a head that take the processor time of the softmax's."""

    def seconds(head: str) -> float:
        file = out / f"{TransformerCell(cell.vocab, cell.size, head, 'parameters', cell.seed).name}.json"
        return float(json.loads(file.read_text(encoding="utf-8"))["seconds_a_step"])

    return max(1, round(STEPS * seconds("softmax") / seconds(cell.head)))


class Text(NamedTuple):
    """WikiText-2 in the tokens of a byte-pair vocabulary that was trained on it."""

    train: Tensor
    """int64, (N,)."""
    test: Tensor
    """int64, (N,), the tokens of the first `TEST_BYTES` bytes."""
    test_bytes: int


def _text(data: str, vocab: int) -> Text:
    train, test = (read_text(data, split, dataset=None).decoded() for split in ("train", "test"))
    tokenizer, lines = ByteLevelBPETokenizer(), train.splitlines(keepends=True)
    tokenizer.train_from_iterator(lines, vocab_size=vocab, min_frequency=0, show_progress=False)
    scored = test.encode()[:TEST_BYTES].decode(errors="ignore")
    ids = [torch.tensor(tokenizer.encode(text).ids) for text in (train, scored)]
    return Text(ids[0], ids[1], len(scored.encode()))


def _run(cell: TransformerCell, text: Text, steps: int) -> dict[str, Any]:
    """Train one model and measure it."""
    model, equal = _model(cell)
    trained = _train(model, text.train, steps, rate=RATES[cell.size], seed=cell.seed)
    return {
        "steps": steps,
        "tokens": steps * BATCH * LENGTH,
        "parameters": _parameters(model),
        "equal_parameters": equal,
        "feed_forward": model.config.intermediate_size,
        **trained,
        "bits_per_byte": _nats(model, text.test) / math.log(2) / text.test_bytes,
        **_expressed(model, text.test),
    }


def _model(cell: TransformerCell) -> tuple[Any, bool]:
    """Return the model, and whether it has as many parameters as the one with tied embeddings and a softmax."""
    d, (head, settings) = cell.size, HEADS[cell.head]
    if cell.head == "mos-2-low-rank":
        settings = {**settings, "context_rank": d // 8}
    tied = cell.head != "softmax-untied"

    def build(width: int, tied: bool, head: str, settings: dict[str, Any]) -> Any:
        torch.manual_seed(cell.seed)
        config = LlamaConfig(
            vocab_size=cell.vocab, hidden_size=d, intermediate_size=width, num_hidden_layers=LAYERS,
            num_attention_heads=d // 16, max_position_embeddings=LENGTH, tie_word_embeddings=tied,
            bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        return with_head(LlamaForCausalLM(config), head, **settings)

    extra = _parameters(build(4 * d, tied, head, settings)) - _parameters(build(4 * d, True, "softmax", {}))
    width = 4 * d - round(extra / (3 * LAYERS * d))
    equal = width >= d
    return build(width if equal else 4 * d, tied, head, settings), equal


def _parameters(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _train(model: Any, ids: Tensor, steps: int, *, rate: float, seed: int) -> dict[str, float]:
    config = OptimizerConfig(learning_rate=rate, weight_decay=DECAY, warmup_steps=WARMUP)
    optimizer = build(config, model.parameters(), model.head.parameter_settings())
    generator = torch.Generator().manual_seed(seed)
    model.train()
    loss, began = torch.tensor(math.nan), time.process_time()
    for step in range(steps):
        starts = torch.randint(len(ids) - LENGTH, (BATCH, 1), generator=generator)
        batch = ids[starts + torch.arange(LENGTH)]
        set_learning_rate(optimizer, learning_rate(config, step=step, steps=steps))
        loss = model(batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    seconds = time.process_time() - began
    return {"seconds_a_step": seconds / steps, "processor_seconds": seconds, "last_train_loss": float(loss.detach())}


def _nats(model: Any, ids: Tensor) -> float:
    """Return −log P of all tokens but the first, in windows that overlap by one token."""
    model.eval()
    whole = (len(ids) - 1) // LENGTH * LENGTH
    windows = [ids[start : start + LENGTH + 1] for start in range(0, whole, LENGTH)]
    batches = [torch.stack(windows[start : start + BATCH]) for start in range(0, len(windows), BATCH)]
    batches += [ids[whole:].unsqueeze(0)] if len(ids) > whole + 1 else []
    with torch.no_grad():
        return sum(float(model(batch, labels=batch, num_items_in_batch=1).loss) for batch in batches)


def _expressed(model: Any, ids: Tensor) -> dict[str, Any]:
    """Return rank, ε-effective rank and kept share of the gradient, of the first contexts of the test text."""
    contexts = min(CONTEXTS, (len(ids) - 1) // LENGTH * LENGTH)
    windows = ids[:contexts].view(-1, LENGTH)
    hidden = final_hidden(model, windows, torch.ones_like(windows))
    source = open_source(model.head, hidden=hidden.detach().flatten(0, 1), targets=ids[1 : contexts + 1])
    return {**ranks(rank(source)), "gradient_kept": gradient(source).kept}


if __name__ == "__main__":
    main(study_transformers, "Train one small transformer with several output layers.")
