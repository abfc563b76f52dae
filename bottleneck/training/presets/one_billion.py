"""The 1B Word benchmark, lower-cased, with its 100,000 most frequent words: tables 3 and 10 of Yang et al. 2018.

    bottleneck data get one-billion --from FOLDER
    bottleneck train --preset 1b-mos7 --out runs/1b-mos7

Two LSTM layers, no dropout. The text stays in a file on disk and is read as it is needed.
"""

from __future__ import annotations

from typing import Any

from .preset import Preset, plain_lstm, plain_sgd, published_text

TOKENS = 8e8
"""Approximate number of tokens in an epoch."""
FLOPS = 1.5e13
"""Operations a second, three quarters of an A100's float32 rate. A token takes six operations for each weight of the
recurrent layers and of the output layer."""


def _one_billion(variant: str, head: str, *, embedding_size: int, **settings: Any) -> Preset:
    weights = 2 * 4 * 1024 * (1024 + 1024) + settings.get("components", 1) * embedding_size * 100_000
    hours = 6 * weights * 5 * TOKENS / FLOPS / 3600
    return Preset(
        family="1b",
        head=head,
        variant=variant,
        summary=f"LSTM 2 × 1024 with a {head} head, d = {embedding_size}, on the 1B Word benchmark",
        cost=f"about {hours:.0f} hours on one A100 (estimated: float32 products at 15 TFLOP/s)",
        expected=published_text(f"1b/{variant}"),
        corpus="one-billion",
        backbone=plain_lstm(embedding_size, hidden_size=1024, layers=2),
        settings=settings,
        training={
            "epochs": 5,
            "batch_size": 60,
            "bptt": 35,
            "validations": 50,  # an epoch takes about 380,000 steps
            "save_every": 5000,
            "optimizer": plain_sgd(20.0, weight_decay=0.0),
        },
    )


PRESETS = (
    _one_billion("softmax", "softmax", embedding_size=1024),
    _one_billion("mos7", "mos", embedding_size=900, components=7),
)
