"""The 1B Word benchmark, lower-cased, with its 100,000 most frequent words: tables 3 and 10 of the MoS paper.

    bottleneck data get one-billion --from FOLDER
    bottleneck train --preset 1b-mos7 --out runs/1b-mos7

Two LSTM layers, no dropout. The text stays in a file on disk and is read as it is needed.
"""

from __future__ import annotations

from typing import Any

from .preset import Preset, plain_sgd


def _one_billion(variant: str, head: str, *, embedding_size: int, expected: str, **settings: Any) -> Preset:
    return Preset(
        family="1b",
        head=head,
        variant=variant,
        summary=f"LSTM 2 × 1024 with a {head} head, d = {embedding_size}, on the 1B Word benchmark",
        cost="several days on one A100 (estimated)",
        expected=f"published: {expected} (MoS paper, table 3)",
        values={
            "corpus": "one-billion",
            "model": {
                "backbone": {
                    "name": "lstm",
                    "embedding_size": embedding_size,
                    "hidden_size": 1024,
                    "layers": 2,
                    "dropout": 0.0,
                },
                "head": {"name": head, "embedding_size": embedding_size, **settings},
            },
            "training": {
                "epochs": 5,
                "batch_size": 60,
                "bptt": 35,
                "validations": 50,  # an epoch takes about 380,000 steps
                "save_every": 5000,
                "optimizer": plain_sgd(20.0, weight_decay=0.0),
            },
        },
    )


PRESETS = (
    _one_billion("softmax", "softmax", embedding_size=1024, expected="valid 43.86, test 42.77"),
    _one_billion("mos7", "mos", embedding_size=900, expected="valid 38.01, test 37.10", components=7),
)
