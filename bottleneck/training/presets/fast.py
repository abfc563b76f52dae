"""Published models with a recipe of few epochs, for hours on one processor core or minutes on a GPU.

    bottleneck train --preset ptb-fast-mos --set training.keep_checkpoints=true --out runs/ptb-fast-mos

All heads have the same recipe: AdamW, one cosine cycle over five epochs of Penn Treebank or two of WikiText-2, batches
of 32 texts and stretches of 35 tokens, half the dropout of `papers`, bfloat16 products; on WikiText-2 the loss of a
quarter of the predictions. It is for ranks at the published sizes in few hours, and does not reach the published
perplexities.

Measurements behind the recipe, of 22 November 2026 on one thread of an x86-64 server (AMD EPYC, AVX-512 with bfloat16
dot products, no AMX; torch 2.13.0):

* Minutes of an epoch of Penn Treebank with the full Softmax model, in bfloat16 and float32, by batch × stretch: 64 × 70
  17.3 and 24.6; 20 × 70 26.4 and 32.1. In bfloat16 also 64 × 35 16.0, 32 × 70 19.2, 32 × 35 19.8 and 16 × 70 25.7.
  Stretches of half the length give twice the steps in about the same time. MoS, 32 × 70: 41.2 and 72.4.
* Validation perplexity of a model with a quarter of the width (288, 288, 100) after one epoch of a third of the text:
  420, 343 and 295 at learning rates of 0.003, 0.006 and 0.012 with batches of 32; 352 with batches of 64 at 0.012; 286
  with batches of 16 at 0.009, which take a third more time at full width. At 0.006, clipping gradients at 1 or at 0.25
  gives 343 both; no dropout 322, a quarter of that of `papers` 343. On the whole text: 227 and 172 at 0.003 and 0.01.
* Perplexity of the full model with half the dropout on 10,000 tokens of the validation text, after a cycle of 160
  steps: 413 and 390 at learning rates of 0.004 and 0.008. A longer cycle needs a lower rate; 0.005 was chosen.
* Muon was not tried: its five Newton-Schulz iterations take about 0.5 Tflop for these LSTM matrices, three times a step
  of 1,120 tokens.

Half the dropout was chosen without a sweep: dropout increases perplexity in the first epoch, and 24 million weights see
930,000 tokens five times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .papers import PTB, PTB_MIXTURE, WT2, WT2_MIXTURE
from .preset import Preset, one_cycle

RECIPES = {"ptb": (PTB, PTB_MIXTURE), "wt2": (WT2, WT2_MIXTURE)}
"""Sizes of the plain models and of the mixtures."""
EPOCHS = {"ptb": 5, "wt2": 2}
DROPOUT = 0.5
"""Factor of the dropout probabilities of `papers`, and of the penalties on activations."""
LOSS_FRACTION = {"ptb": 1.0, "wt2": 0.25}
"""Share of the predictions whose loss is computed. A step of MoS on WikiText-2 takes 3.0 s with a quarter of the 1,120
predictions, and took 8.2 s with all, on one thread."""
LEARNING_RATE = 5e-3
MINUTES = {
    "ptb-softmax": 20,
    "ptb-moc": 19,
    "ptb-mos": 43,
    "ptb-sigsoftmax": 21,
    "ptb-lms-plif": 23,
    "wt2-softmax": 50,
    "wt2-mos": 105,
}
"""Minutes of an epoch on the machine above, estimated from the time of a step."""
MEASURED = {
    "ptb-softmax": "test perplexity 86.35, rank 402",
    "ptb-moc": "test perplexity 84.15, rank 282",
    "ptb-mos": "test perplexity 86.94, rank 9,996 (1,688 to 10,000), after four epochs",
    "ptb-sigsoftmax": "test perplexity 86.94, rank 8,968 (1,029 to 10,000)",
    "ptb-lms-plif": "test perplexity 87.13, rank 529 (402 to 4,915)",
    "wt2-softmax": "test perplexity 221.6, rank 402 of 33,320 contexts",
    "wt2-mos": "test perplexity 189.7, rank 1,606 (188 to 11,226) of 245,568 contexts",
}
"""Results of November 2026, seed 0; see docs/full-size.md. `wt2-softmax` had two cosine cycles of one epoch."""


def _fast(corpus: str, head: str, **settings: Any) -> Preset:
    recipe = RECIPES[corpus]["components" in settings]
    slow, epochs = recipe.preset(corpus, head, **settings), EPOCHS[corpus]
    papers = {"dropout_embedding": 0.1, "dropout_output": 0.4, "weight_drop": 0.5, **slow.backbone}
    penalties = {"activation_penalty": 2.0 * DROPOUT, "temporal_penalty": 1.0 * DROPOUT}
    hours = epochs * MINUTES[slow.name] / 60
    return replace(
        slow,
        family=f"{corpus}-fast",
        summary=f"{slow.summary}, by AdamW in {epochs} epochs",
        cost=f"about {hours:.1f} hours on one CPU core (x86-64 with AVX-512 and bfloat16)",
        expected=f"{MEASURED.get(slow.name, 'not measured yet')}; with the papers' recipe, {slow.expected}",
        backbone={**_scaled(papers), **penalties},
        settings=_scaled(slow.settings),
        training={**one_cycle(epochs, LEARNING_RATE), "loss_fraction": LOSS_FRACTION[corpus]},
    )


def _scaled(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value * DROPOUT if "drop" in key else value for key, value in settings.items()}


PRESETS = (
    _fast("ptb", "softmax"),
    _fast("ptb", "moc", components=15),
    _fast("ptb", "mos", components=15),
    _fast("ptb", "sigsoftmax"),
    # From the identity, with slow slopes: docs/plif.md has the experiment. The authors start at a noise of 1.
    _fast("ptb", "lms-plif", knots=100_000, noise=0.0, slope_learning_rate=0.01),
    _fast("wt2", "softmax"),
    _fast("wt2", "mos", components=15),
)
