"""Character models of text8, where Softmax is no bottleneck: table 12 of Yang et al. 2018.

    bottleneck data get text8
    bottleneck train --preset text8-mos7 --out runs/text8-mos7
    bottleneck eval runs/text8-mos7

The paper gives sizes and no training settings; those here are this project's own. One LSTM layer with tied embeddings
has the printed numbers of parameters.
Bits per character are a loss in nats over ln 2; ``bottleneck eval`` prints them.
"""

from __future__ import annotations

from typing import Any

from .preset import Preset, plain_lstm, published_text


def _text8(variant: str, head: str, *, hidden_size: int, embedding_size: int, **settings: Any) -> Preset:
    return Preset(
        family="text8",
        head=head,
        variant=variant,
        summary=f"characters of text8: one LSTM layer of {hidden_size} with a {head} head, d = {embedding_size}",
        cost="about 3 hours on one A100 (estimated)",
        expected=published_text(f"text8/{variant}"),
        corpus="text8",
        backbone=plain_lstm(embedding_size, hidden_size=hidden_size, layers=1),
        settings=settings,
        training={
            "epochs": 10,
            "batch_size": 128,
            "bptt": 200,
            "optimizer": {"learning_rate": 2e-3, "warmup_steps": 1000, "clip": 1.0},
        },
    )


PRESETS = (
    _text8("softmax", "softmax", hidden_size=1024, embedding_size=1024),
    _text8("mos7", "mos", hidden_size=910, embedding_size=510, components=7),
    _text8("mos10", "mos", hidden_size=860, embedding_size=452, components=10),
)
