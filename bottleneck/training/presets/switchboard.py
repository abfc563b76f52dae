"""Encoder–decoders on Switchboard with Softmax, MoC and MoS: table 4 of the MoS paper.

    bottleneck data get switchboard --from swda.zip
    bottleneck train --preset switchboard-small-mos --out runs/switchboard-small-mos
    bottleneck eval runs/switchboard-small-mos --bleu

The paper gives neither sizes nor training settings. ``switchboard-*`` have those of Zhao et al. 2017 and their
code (snakeztc/NeuralDialog-CVAE, config_utils.py), whose text the paper took: embeddings of 200, encoders of 300 in
each direction and of 600, a decoder of 400, batches of 30, Adam at 0.001, gradients clipped at 5. The LSTMs in place of
their GRUs and the attention, dropout, the number of components and everything about ``switchboard-small-*`` are this
project's own. Within a family the numbers of parameters are equal to 0.2 %: Softmax has larger embeddings in place of
the mixtures' projections.
"""

from __future__ import annotations

from typing import Any

from .preset import Preset, published_text


def _backbone(embedding_size: int, *, line: int, context: int, hidden: int, dropout: float) -> dict[str, Any]:
    sizes = {"embedding_size": embedding_size, "line_size": line, "context_size": context, "hidden_size": hidden}
    return {"name": "encoder-decoder", **sizes, "dropout": dropout}


def _full(head: str, embedding_size: int, **settings: Any) -> Preset:
    """``switchboard-*``: the sizes of Zhao et al. 2017."""
    return Preset(
        family="switchboard",
        head=head,
        summary=f"LSTM encoder-decoder of 400 with a {head} head, d = {embedding_size}, on Switchboard",
        cost="about 3 hours on one A100 (estimated)",
        expected=published_text(f"switchboard/{head}"),
        corpus="switchboard",
        backbone=_backbone(embedding_size, line=300, context=600, hidden=400, dropout=0.3),
        settings=settings,
        training={
            "epochs": 20,
            "batch_size": 30,
            "stop_interval": 2,
            "optimizer": {"learning_rate": 1e-3, "schedule": "constant", "weight_decay": 0.0, "clip": 5.0},
        },
    )


MINUTES = {"softmax": 6, "moc": 6, "mos": 9}
"""Training time on one free processor core, an x86-64 server with AVX-512."""
EXPECTED = {"softmax": "29.2 ± 0.4", "moc": "29.2 ± 0.5", "mos": "29.4 ± 0.4"}
"""Test perplexity, as `figures/results/switchboard-small` has it."""


def _small(head: str, embedding_size: int, **settings: Any) -> Preset:
    """``switchboard-small-*``: once through the text on a laptop."""
    return Preset(
        family="switchboard-small",
        head=head,
        summary=f"LSTM encoder-decoder of 96 with a {head} head, d = {embedding_size}, on Switchboard",
        cost=f"about {MINUTES[head]} minutes on one CPU core (x86-64 with AVX-512)",
        expected=f"test perplexity {EXPECTED[head]} (measured, three seeds)",
        corpus="switchboard",
        backbone=_backbone(embedding_size, line=48, context=96, hidden=96, dropout=0.1),
        settings=settings,
        training={"epochs": 1, "batch_size": 64, "validations": 2, "optimizer": {"learning_rate": 0.005}},
    )


PRESETS = (
    _full("softmax", 250),
    _full("moc", 200, components=10),
    _full("mos", 200, components=10),
    _small("softmax", 49),
    _small("moc", 48, components=3),
    _small("mos", 48, components=3),
)
