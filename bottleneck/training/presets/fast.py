"""A modern recipe for the models of the papers: AdamW, one cosine, larger batches, bfloat16 products.

    bottleneck train --preset ptb-fast-mos --out runs/ptb-fast-mos

It is meant to come near a perplexity in the fewest minutes of one large GPU, not to reach the published one. Hours are
estimates as in `papers`, from published seconds of an epoch in float32 and with the papers' batches on one V100.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .papers import PTB, PTB_MIXTURE
from .preset import Preset

EPOCHS, BATCH_SIZE = 60, 64


def _fast(head: str, **settings: Any) -> Preset:
    recipe = PTB_MIXTURE if settings else PTB
    slow = recipe.preset("ptb", head, **settings)
    hours = EPOCHS * recipe.seconds_an_epoch / 3600
    training = {
        "epochs": EPOCHS,
        "batch_size": BATCH_SIZE,
        "bptt": 70,
        "bptt_deviation": 5.0,
        "precision": "bfloat16",
        "optimizer": {
            "name": "adamw",
            "learning_rate": 3e-3,
            "schedule": "cosine",
            "warmup_steps": 200,
            "weight_decay": 0.01,
            "clip": 0.25,
        },
    }
    return replace(
        slow,
        summary=f"{slow.summary}, by AdamW in {EPOCHS} epochs",
        cost=f"about {hours:.1f} hours on one V100 in float32 (estimated)",
        expected=f"not measured yet; with the papers' recipe, {slow.expected}",
        training=training,
    )


PRESETS = (_fast("softmax"), _fast("moc", components=15), _fast("mos", components=15))
