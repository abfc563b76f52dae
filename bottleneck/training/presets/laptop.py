"""Presets for a laptop: the demo, and Penn Treebank with small models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .papers import MOS_K
from .preset import Preset, one_cycle, plain_lstm, plain_sgd

SMALL_HEADS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "moc": {"components": 4},
    "mos": {"components": 4},
    "sigsoftmax": {},
    "gss": {},
    "lms-plif": {"knots": 100_000, "noise": 0.0, "slope_learning_rate": 0.01},
    "mos-plif": {"components": 2, "knots": 100_000, "noise": 0.0, "slope_learning_rate": 0.01},
}
"""The heads of ``ptb-small-*``; with K = 4 the models have about the same size.

PLIFs start at the identity and learn their slopes slowly (docs/plif.md); MoS + PLIF has K = 2, because with K = 4 a
step took 2.3 times that of MoS."""


PTB_SMALL: dict[str, tuple[int, str]] = {
    "softmax": (20, "test perplexity 92.07, rank 102"),
    "moc": (22, "test perplexity 91.02, rank 102"),
    "mos": (57, "test perplexity 89.53, rank 9,997 (1,836 to 10,000)"),
    "sigsoftmax": (32, "test perplexity 92.86, rank 7,771 (980 to 9,998)"),
    "gss": (34, "test perplexity 93.33, rank 9,440 (1,502 to 10,000)"),
    "lms-plif": (34, "test perplexity 92.48, rank 1,945 (119 to 9,997)"),
    "mos-plif": (59, "test perplexity 91.03, rank 9,333 (1,309 to 10,000)"),
}
"""Minutes and results of seed 0, from figures/results/ptb-small."""


def _demo(head: str, settings: dict[str, Any]) -> Preset:
    """``demo-*``: d = 24 against M ≈ 2,650."""
    return Preset(
        family="demo",
        head=head,
        summary=f"LSTM 128 with a {head} head, d = 24, on python-docs",
        cost="20 seconds to a minute on one CPU core",
        expected="what 'bottleneck demo' prints",
        corpus="python-docs",
        backbone=plain_lstm(24, hidden_size=128, layers=1, dropout=0.3),
        settings=settings,
        training={"epochs": 6, "batch_size": 16, "bptt": 35, "optimizer": {"learning_rate": 0.01}},
    )


def _ptb_small(head: str, settings: dict[str, Any]) -> Preset:
    """``ptb-small-*``: Penn Treebank on a laptop, with one cycle of AdamW over twelve epochs.

    The test perplexity of Softmax after six epochs was 94.5, at a learning rate of 0.01 with a dropout of 0.2. With the
    loss of a quarter of the predictions (learning rate 0.008, batches of 32) it was 107.1 after twelve epochs, which
    took half the time of those with all (24 November 2026, seed 0).
    """
    minutes, measured = PTB_SMALL[head]
    return Preset(
        family="ptb-small",
        head=head,
        summary=f"LSTM 2 × 200 with a {head} head, d = 100, on Penn Treebank",
        cost=f"{minutes} minutes on one CPU core (x86-64 with AVX-512 and bfloat16)",
        expected=f"{measured} (measured, seed 0)",
        corpus="ptb",
        backbone=plain_lstm(100, hidden_size=200, layers=2, dropout=0.3),
        settings=settings,
        training={
            "epochs": 12,
            "batch_size": 20,
            "bptt": 35,
            "precision": "bfloat16",
            "optimizer": {"learning_rate": 0.005},
        },
    )


DEMO_HEADS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "moc": {"components": 4},
    "mos": {"components": 4},
    "lms-plif": {"knots": 10_000},
}
"""The heads of the demo, in models of about equal size: 100,000 knots would be two thirds of a model."""

AWD_HEADS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "moc": {"components": 4, "context_dropout": 0.1},
    "mos": {"components": 4, "context_dropout": 0.1},
    "sigsoftmax": {},
    "gss": {},
    "lms-plif": {"knots": 100_000, "slope_learning_rate": 0.1},
    "mos-plif": {"components": 2, "context_dropout": 0.1, "knots": 100_000, "slope_learning_rate": 0.1},
}
"""The heads of ``ptb-small-awd-*``; MoS + PLIF has K = 2, because with K = 4 a step took 2.3 times that of MoS."""


PTB_SMALL_AWD: dict[str, tuple[int, str, str]] = {
    "softmax": (6, "131.9", "102"),
    "moc": (6, "133.9", "102"),
    "mos": (18, "130.8", "2,886 (503 to 8,287)"),
    "sigsoftmax": (9, "133.9", "2,356 (460 to 7,453)"),
    "gss": (10, "132.9", "3,208 (633 to 8,628)"),
    "lms-plif": (12, "143.9", "2,441 (271 to 10,000)"),
    "mos-plif": (21, "143.8", "2,916 (419 to 9,654)"),
}
"""Minutes of the fastest of three runs, and test perplexity and rank of seed 0, of ``ptb-small-awd-*`` with bfloat16
products."""

PTB_SMALL_NT_ASGD: dict[str, tuple[int, str, str]] = {
    "softmax": (4, "124.7 ± 0.7", "102"),
    "moc": (4, "125.9 ± 0.4", "102"),
    "mos": (9, "123.5 ± 0.6", "4,606 to 4,780 (778 to 9,999)"),
    "sigsoftmax": (6, "126.5 ± 0.9", "4,189 to 4,296 (726 to 9,902)"),
    "gss": (6, "125.8 ± 0.2", "5,511 to 5,636 (1,060 to 9,975)"),
    "lms-plif": (6, "135.5 ± 1.0", "3,917 to 4,512 (408 to 10,000)"),
    "mos-plif": (10, "135.5 ± 1.0", "4,422 to 4,873 (567 to 10,000)"),
}
"""Minutes of the fastest of three runs, without those of ``ptb-small-awd-*``, and test perplexity and rank of three
seeds of ``ptb-small-nt-asgd-*`` with bfloat16 products, from figures/results/ptb-small-nt-asgd."""


PTB_SMALL_BACKBONE: dict[str, Any] = {
    "name": "awd-lstm",
    "embedding_size": 100,
    "hidden_sizes": [200, 200],
    "dropout_embedding": 0.05,
    "dropout_input": 0.2,
    "dropout_hidden": 0.1,
    "dropout_output": 0.2,
    "weight_drop": 0.2,
}
"""AWD-LSTM with less dropout than in Merity et al. 2018, for fewer weights and epochs."""


ONE_CORE = "on one CPU core (x86-64 with AVX-512 and AMX, --set training.precision=bfloat16)"


def _ptb_small_awd(head: str, settings: dict[str, Any]) -> Preset:
    """``ptb-small-awd-*``: the same sizes with AWD-LSTM's regularization, trained by AdamW with averaged weights.

    After one epoch, Softmax's validation perplexity was 178, and 303 with SGD at a learning rate of 10. Averaging
    allows a high constant learning rate. It starts when one of an epoch's four validations is worse than the best
    before it, at the latest after the first epoch.
    """
    minutes, perplexity, rank = PTB_SMALL_AWD[head]
    return Preset(
        family="ptb-small-awd",
        head=head,
        summary=f"AWD-LSTM 2 × 200 with a {head} head, d = 100, on Penn Treebank",
        cost=f"{minutes} minutes {ONE_CORE}",
        expected=f"test perplexity {perplexity}, rank {rank} of the first 20,000 contexts (measured, seed 0)",
        corpus="ptb",
        backbone=PTB_SMALL_BACKBONE,
        settings=settings,
        training={
            "epochs": 2,
            "batch_size": 40,
            "bptt": 35,
            "bptt_deviation": 5.0,
            "validations": 4,
            "averaging": {"start": "non-monotone", "interval": 0, "latest": 1},
            "optimizer": {"learning_rate": 0.015, "schedule": "constant"},
        },
    )


def _ptb_small_nt_asgd(head: str, settings: dict[str, Any]) -> Preset:
    """``ptb-small-nt-asgd-*``: SGD from the weights of ``ptb-small-awd-*``, then NT-ASGD.

    This is the optimizer of Merity et al. 2018, which takes tens of epochs from random weights. Gradients are clipped
    at 0.25. Averaging starts at the first validation that is worse than an earlier one; AdamW's weights are validated
    too. A doubled learning rate did not improve Sigsoftmax and GSS.
    """
    first = _ptb_small_awd(head, settings)
    if "slope_learning_rate" in settings:
        settings = {**settings, "slope_learning_rate": 0.02 / 5.0}  # a rate of 0.02, as in `papers`
    minutes, perplexity, rank = PTB_SMALL_NT_ASGD[head]
    return replace(
        first,
        family="ptb-small-nt-asgd",
        initial=first.name,
        summary=f"NT-ASGD from AdamW's weights: {first.summary}",
        cost=f"{minutes} minutes {ONE_CORE}, beside those of the run it starts from",
        expected=f"test perplexity {perplexity}, rank {rank} of the first 20,000 contexts (measured, three seeds)",
        settings=settings,
        training={
            **first.training,
            "epochs": 1,
            "averaging": {"start": "non-monotone", "interval": 0},
            "optimizer": {**plain_sgd(5.0), "decayed": "matrices"},
        },
    )


SMALL_MOS = {
    1: "test perplexity 117.3 ± 0.6, rank 102 (measured, three seeds)",
    3: "test perplexity 114.0 ± 0.2, rank 3,692 to 3,773 (463 to 9,998) (measured, three seeds)",
    5: "test perplexity 113.0 ± 0.4, rank 5,152 to 5,305 (651 to 10,000) (measured, three seeds)",
    10: "test perplexity 111.3 ± 0.4, rank 6,963 to 6,966 (883 to 10,000) (measured, two seeds)",
    15: "test perplexity 110.67, rank 7,849 (1,015 to 10,000) (measured, seed 0)",
    20: "test perplexity 111.12, rank 8,272 (1,079 to 10,000) (measured, seed 0)",
}
"""Results of ``ptb-small-mos-k*``, from figures/results/ptb-small-mos."""


def _ptb_small_mos(components: int) -> Preset:
    """``ptb-small-mos-k*``: MoS by its number of softmaxes, as in table 7 of Yang et al. 2018, in the sizes above.

    With K = 1, the validation perplexity after three epochs was 125.1, 122.8, 129.6 and 138.1 at learning rates of
    0.008, 0.016, 0.024 and 0.032 (23 November 2026, seed 0). The minutes were measured for K = 1 and are estimated for
    the others from the times of steps with K = 5 and 20.
    """
    return Preset(
        family="ptb-small-mos",
        head="mos",
        variant=f"k{components}",
        summary=f"AWD-LSTM 2 × 200 with a mos head (K = {components}), d = 100, on Penn Treebank",
        cost=f"about {2.5 + 2.7 * components:.0f} minutes on one CPU core (x86-64 with AVX-512 and bfloat16)",
        expected=SMALL_MOS[components],
        corpus="ptb",
        backbone=PTB_SMALL_BACKBONE,
        settings={"components": components, "context_dropout": 0.1},
        training=one_cycle(epochs=3, learning_rate=0.016),
    )


PRESETS = (
    *(_demo(head, settings) for head, settings in DEMO_HEADS.items()),
    *(_ptb_small(head, settings) for head, settings in SMALL_HEADS.items()),
    *(_ptb_small_awd(head, settings) for head, settings in AWD_HEADS.items()),
    *(_ptb_small_nt_asgd(head, settings) for head, settings in AWD_HEADS.items()),
    *(_ptb_small_mos(components) for components in MOS_K),
)
